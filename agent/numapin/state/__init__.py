"""Effects on our own disk."""
