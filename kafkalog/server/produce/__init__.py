"""Routes that append records."""
