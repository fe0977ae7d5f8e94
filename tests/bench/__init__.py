"""Benchmarks: end to end, Kafka beside in the same run, results as JSON under results/."""
