"""Spark imports modules whose names begin with ``pyspark_``: ``format("kafkalog")`` works at once."""

from kafkalog.spark.source import KafkalogDataSource as DefaultSource

__all__ = ["DefaultSource"]
