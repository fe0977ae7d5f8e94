"""One module a page: what it shows."""
