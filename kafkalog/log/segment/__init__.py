"""One segment: its log file, its indexes, its recovery and its replacement."""
