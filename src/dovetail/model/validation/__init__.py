"""Field validation of pods and metadata, as the API server does it.

Used by the lab's API server, which refuses what is wrong, and by commands that read manifests from files, which report
what a server would refuse. Every function yields `FieldError`s with the path, the value and the server's own words.
"""
