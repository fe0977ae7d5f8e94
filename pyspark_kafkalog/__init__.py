"""Spark imports modules named ``pyspark_*``: ``format("kafkalog")`` works at once."""

from kafkalog.spark.source import KafkalogDataSource as DefaultSource

__all__ = ["DefaultSource"]
