"""Tests against a real Apache Kafka 4.1.0; all carry the marker oracle."""
