"""Programs in pods: what runs in a container whose image the lab knows."""
