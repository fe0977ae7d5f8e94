"""Kernels that read and build record batches."""
