"""Routes of the web console."""
