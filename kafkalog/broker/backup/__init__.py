"""Backups of partitions and their restore."""
