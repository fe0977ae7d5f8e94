"""Bytes to values and back: no disk, no clock, no thread, no log line."""
