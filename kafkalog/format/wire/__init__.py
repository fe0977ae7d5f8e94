"""Records in JSON and in Arrow."""
