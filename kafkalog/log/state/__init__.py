"""What a log knows beside its records: producers and leader epochs."""
