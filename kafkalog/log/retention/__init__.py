"""Which segments retention deletes, and their deletion."""
