"""Files beside a log: indexes, snapshots, checkpoints, properties, state files."""
