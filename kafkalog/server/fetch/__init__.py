"""Routes that read records."""
