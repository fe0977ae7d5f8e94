"""kafkalog: topic logs kept on disk exactly as Apache Kafka keeps them, served over HTTP."""

__version__ = "0.1.0"
