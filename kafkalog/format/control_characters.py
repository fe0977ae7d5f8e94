"""Control characters, which no name may have and no log line shows as they are.

Pure; any thread.
"""

from __future__ import annotations

import re

CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""C0, DEL, C1, and the separators that some viewers take for line ends."""
