"""The job ``archive``: topics into Parquet files or an Iceberg table."""
