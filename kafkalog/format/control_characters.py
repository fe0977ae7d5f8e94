"""Control characters, which no name may have and no log line or terminal gets as they are.

Pure; any thread.
"""

from __future__ import annotations

import re

CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""C0, DEL, C1, and the separators that some viewers take for line ends."""


def escaped(text: str, *, but: str = "") -> str:
    r"""With ``\xNN`` or ``\uNNNN`` in their place, except those of ``but``."""
    return CONTROL_CHARACTERS.sub(
        lambda found: found[0] if found[0] in but else _escape(ord(found[0])), text
    )


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
