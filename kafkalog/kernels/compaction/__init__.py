"""Kernels of log compaction: key hashes, the offset map, the filter and its output."""
