"""Routes of consumers, groups and sinks."""
