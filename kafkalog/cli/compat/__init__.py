"""Kafka's own tools by their names and options, at a daemon: `kafkalog compat kafka-topics ...`."""
