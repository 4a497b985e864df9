"""The built-in kinds: defaults, validation, subresources, admission."""
