"""Producers, and writes of external systems that are committed as one."""
