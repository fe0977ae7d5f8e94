"""Spark looks for data sources in modules of this name: ``format("kafkalog")`` needs no call."""

from kafkalog.spark.source import KafkalogDataSource as DefaultSource

__all__ = ["DefaultSource"]
