"""Retention of all logs, and what holds it back."""
