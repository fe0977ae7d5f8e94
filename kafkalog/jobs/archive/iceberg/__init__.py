"""Iceberg tables: partitions and data files, maintenance, upsert tables."""
