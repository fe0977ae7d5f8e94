"""One log directory: its writer thread, its flusher, its checkpoints, its identity."""
