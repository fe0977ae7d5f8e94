"""From the log directories' names to loaded logs."""
