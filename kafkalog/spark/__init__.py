"""kafkalog for Spark: a data source, sinks and jobs over log directories or daemons.

The modules, in the order one reads them: `logs` (where records are: the values that all others
share), `partition_files`, `directory_logs`, `directory_reads`, `daemon_logs`, `daemon_reads` (the
two places), `record_batches` (Arrow). Nothing of these imports pyspark, and nothing heavy is
imported before it is needed: a planner never loads a kernel.
"""
