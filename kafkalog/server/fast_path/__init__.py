"""Requests of the common shape, answered from the connection itself."""
