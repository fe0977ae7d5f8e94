"""Writing to kafkalog from Spark."""
