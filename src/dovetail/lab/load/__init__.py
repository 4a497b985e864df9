"""What containers use: load models and the usage they give."""
