"""One module a family of routes."""
