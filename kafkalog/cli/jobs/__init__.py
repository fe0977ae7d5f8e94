"""Commands that run jobs, in processes or on Spark, and the performance tests."""
