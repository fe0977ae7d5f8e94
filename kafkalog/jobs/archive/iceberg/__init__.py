"""Iceberg tables: partitions and data files and maintenance."""
