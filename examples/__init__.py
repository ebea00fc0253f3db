"""Task types that do real work, for the demo and as patterns to copy."""
