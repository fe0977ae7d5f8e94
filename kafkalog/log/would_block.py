"""WouldBlock: control flow of the read path, never an error of the user.

Raised when a read was asked not to block and needs the disk. The edge catches it and repeats the
same call with ``may_block=True`` on a reader thread; nothing was changed by the first attempt.
"""

from __future__ import annotations


class WouldBlock(Exception):
    """The answer is not in memory, and ``may_block`` was False."""
