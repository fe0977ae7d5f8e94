"""Compaction: which records survive, the clean of one log, which log is cleaned when."""
