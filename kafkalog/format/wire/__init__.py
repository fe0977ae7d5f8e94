"""What records look like in JSON and in Arrow."""
