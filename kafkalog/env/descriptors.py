"""The process's limit of open descriptors, and what of it connections leave to files."""

from __future__ import annotations

import contextlib
import resource
import sys

_RESERVE_SHARE, _RESERVE_SHARE_MAX = 16, 4
_RESERVE_MIN = 64  # an append to a partition that was at rest takes three


def connection_descriptors(limit: int, *, is_for_operators: bool) -> int:
    """The descriptor from which on a connection is refused.

    POSIX gives out the lowest free number, so one this high says that nearly all are taken, by
    whatever. The rest is for logs; half of it is for the ports of operators, too.
    """
    reserve = max(limit // _RESERVE_SHARE, min(_RESERVE_MIN, limit // _RESERVE_SHARE_MAX))
    return limit - (reserve // 2 if is_for_operators else reserve)


def descriptor_limit() -> int:
    """How many this process can allow itself: the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _number(hard)


def raise_descriptor_limit() -> int:
    """Allow as many descriptors as the hard limit does; how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # more than the kernel takes: what was, holds
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft_descriptor_limit()


def soft_descriptor_limit() -> int:
    """How many this process may have now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _number(soft)


def _number(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
