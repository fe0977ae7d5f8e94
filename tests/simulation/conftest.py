"""Simulations log what no one reads."""

from __future__ import annotations

from tests.crash.conftest import quiet_log

__all__ = ["quiet_log"]
