"""Jobs over whole directories of logs, in processes of this machine or on Spark."""
