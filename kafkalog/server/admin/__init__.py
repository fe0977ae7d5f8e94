"""Routes that describe and change topics, logs and the daemon."""
