"""Reading a log's files without opening the log: checks, listings, counts."""
