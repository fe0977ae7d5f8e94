"""All logs over all log directories: ownership, the single writer, durability, operations."""
