"""The archive of topics in Parquet and Iceberg."""
