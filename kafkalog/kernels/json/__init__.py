"""Kernels between JSON text and records."""
