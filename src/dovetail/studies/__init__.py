"""Studies: one workload on several set-ups, in virtual time, measured alike and reported side by side."""
