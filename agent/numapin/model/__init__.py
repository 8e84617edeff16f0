"""Values: standard library only, no input or output."""
