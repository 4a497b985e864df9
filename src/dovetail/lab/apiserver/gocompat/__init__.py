"""Go formatting that clients see: JSON errors, printed values, map order, times."""
