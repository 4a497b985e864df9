"""Other tools' files as recordings: audit logs, Prometheus range exports, simkube traces, AWS Cost and Usage rows."""
