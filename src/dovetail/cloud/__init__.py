"""The cloud provider interface, and its two sides: AWS and a simulation."""
