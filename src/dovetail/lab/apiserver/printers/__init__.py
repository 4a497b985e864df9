"""kubectl's own columns, a module for each family of kinds."""
