"""The patch kinds: pure functions from a document and a patch to a document."""
