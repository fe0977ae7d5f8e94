"""How fast a daemon takes and gives records, in the words of Kafka's perf tools."""
