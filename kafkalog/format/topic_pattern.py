"""TopicPattern: a regular expression over topic names, matched in linear time.

The syntax is RE2's, as in Kafka 4: no look-around and no back references. The whole name must
match. A backtracking engine can take years over 249 characters, and patterns come from clients.
Any thread.
"""

from __future__ import annotations

from kafkalog.format.integers import FormatError

_CHARACTERS_MAX = 1000
_MEMORY_BYTES_MAX = 1 << 20  # of one compiled pattern; RE2 refuses what needs more


class MalformedPattern(FormatError):
    """No pattern of RE2, or one that is too large."""


class TopicPattern:
    """See the module."""

    def __init__(self, text: str) -> None:
        """MalformedPattern."""
        if not text or len(text) > _CHARACTERS_MAX:
            raise MalformedPattern(f"a pattern has 1 to {_CHARACTERS_MAX} characters")
        # Most daemons never see a pattern: loading the engine is left to the first one.
        import re2

        options = re2.Options()
        options.max_mem = _MEMORY_BYTES_MAX
        options.log_errors = False  # to stderr; the client gets them
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            raise MalformedPattern(error.args[0].decode()) from error
        except UnicodeEncodeError as error:
            raise MalformedPattern("half a surrogate pair is no character") from error

    def matches(self, name: str) -> bool:
        """Whether the whole name matches. Costs its length times the pattern's, at most."""
        return self._compiled.fullmatch(name) is not None
