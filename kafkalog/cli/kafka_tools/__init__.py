"""Command lines with the names and options of Kafka's own tools."""
