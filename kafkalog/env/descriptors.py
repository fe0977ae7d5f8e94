"""The process's limit of open descriptors."""

from __future__ import annotations

import contextlib
import resource
import sys


def descriptor_limit() -> int:
    """How many this process can allow itself: the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _number(hard)


def raise_descriptor_limit() -> int:
    """Allow as many descriptors as the hard limit does; how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # more than the kernel takes: what was, holds
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _number(soft)


def _number(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
