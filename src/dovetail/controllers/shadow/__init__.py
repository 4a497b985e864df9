"""Shadow mode, `dovetail run --dry-run`: plan and record beside another autoscaler, and write nothing."""
