"""Work over whole directories of logs, in a pool of processes or on Spark."""
