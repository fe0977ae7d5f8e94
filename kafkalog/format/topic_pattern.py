r"""TopicPattern: a regular expression over topic names, matched in time that nobody can blow up.

Owns the subset of Java's syntax that names need: characters, ``.``, classes, ``\d``, ``\w``, signs
behind a backslash, groups, ``|``, ``* + ? {m,n}`` (lazy ones too), and ``^`` and ``$`` at the ends,
which change nothing: the whole name must match. A backtracking engine can take years over 249
characters; this one keeps a set of states (Thompson's construction). Kafka 4 takes RE2 patterns for
the same reason, which have no look-around and no back references either. Pure; any thread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIGITS = frozenset("0123456789")
_WORD = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_ALPHABET = _WORD | frozenset(".-")
_ESCAPED_SETS = {"d": _DIGITS, "D": _ALPHABET - _DIGITS, "w": _WORD, "W": _ALPHABET - _WORD}
_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_COUNTS = re.compile(r"\{(\d{1,3})(,(\d{1,3})?)?\}")
_CHARACTERS_MAX = 1000
_DEPTH_MAX = 40
_STATES_MAX = 5000


class MalformedPattern(FormatError):
    """No pattern of this subset, or one that is too large; the position is a character's."""


@dataclass(frozen=True, slots=True)
class _Set:
    characters: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Node
    least: int
    most: int | None


_Node = _Set | _Sequence | _Choice | _Repeat


class TopicPattern:
    """See the module."""

    def __init__(self, text: str) -> None:
        """MalformedPattern."""
        self.text = text
        # By state: the characters that lead to the next one, and the states reached by nothing.
        self._characters: list[frozenset[str]] = []
        self._free: list[list[int]] = []
        start = self._state()
        self._end = self._build(_Parser(text).parse(), start)
        self._start = self._reached([start])

    def matches(self, name: str) -> bool:
        """Whether the whole name matches. Costs its length times the pattern's, at most."""
        states = self._start
        for character in name:
            states = self._reached(
                state + 1 for state in states if character in self._characters[state]
            )
            if not states:
                return False
        return self._end in states

    def _reached(self, states: Iterable[int]) -> frozenset[int]:
        found = set(states)
        pending = list(found)
        while pending:
            for state in self._free[pending.pop()]:
                if state not in found:
                    found.add(state)
                    pending.append(state)
        return frozenset(found)

    def _state(self) -> int:
        if len(self._free) >= _STATES_MAX:
            raise MalformedPattern("the pattern is too large")
        self._characters.append(frozenset())
        self._free.append([])
        return len(self._free) - 1

    def _build(self, node: _Node, start: int) -> int:
        """States for the node from ``start`` on; the state behind it."""
        if isinstance(node, _Set):
            before, after = self._state(), self._state()
            self._free[start].append(before)
            self._characters[before] = node.characters
            return after
        if isinstance(node, _Sequence):
            for part in node.parts:
                start = self._build(part, start)
            return start
        if isinstance(node, _Choice):
            ends = [self._build(part, start) for part in node.parts]
            after = self._state()
            for end in ends:
                self._free[end].append(after)
            return after
        return self._build_repeat(node, start)

    def _build_repeat(self, node: _Repeat, start: int) -> int:
        for _ in range(node.least):
            start = self._build(node.part, start)
        if node.most is None:
            loop = self._state()
            self._free[start].append(loop)
            self._free[self._build(node.part, loop)].append(loop)
            return loop
        skipped = [start]
        for _ in range(node.most - node.least):
            start = self._build(node.part, start)
            skipped.append(start)
        after = self._state()
        for state in skipped:
            self._free[state].append(after)
        return after


class _Parser:
    """Recursive descent over one text."""

    def __init__(self, text: str) -> None:
        if not text or len(text) > _CHARACTERS_MAX:
            raise MalformedPattern(f"a pattern has 1 to {_CHARACTERS_MAX} characters")
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        self._skip("^")
        node = self._choice()
        if self._at < len(self._text):
            raise self._wrong("unbalanced )")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, wanted: str) -> bool:
        found = self._text.startswith(wanted, self._at)
        self._at += len(wanted) if found else 0
        return found

    def _wrong(self, reason: str) -> MalformedPattern:
        return MalformedPattern(reason, self._at)

    def _choice(self) -> _Node:
        parts = [self._sequence()]
        while self._skip("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Choice(tuple(parts))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while (sign := self._peek()) and sign not in "|)":
            if sign == "$" and self._at == len(self._text) - 1:
                self._at += 1
                break
            parts.append(self._repeated(self._atom()))
        return _Sequence(tuple(parts))

    def _repeated(self, node: _Node) -> _Node:
        bounds = _REPEATS.get(self._peek())
        if bounds is not None:
            self._at += 1
        elif counts := _COUNTS.match(self._text, self._at):
            self._at = counts.end()
            least = int(counts[1])
            most = least if counts[2] is None else int(counts[3]) if counts[3] else None
            if most is not None and most < least:
                raise self._wrong("the bounds of a repetition are the wrong way round")
            bounds = least, most
        else:
            return node
        self._skip("?")  # lazy: the same names match
        if self._peek() in _REPEATS:
            raise self._wrong("a repetition of a repetition needs a group")
        return _Repeat(node, *bounds)

    def _atom(self) -> _Node:
        sign = self._peek()
        if sign == "(":
            return self._group()
        if sign == "[":
            self._at += 1
            return self._class()
        if sign == "\\":
            self._at += 1
            return _Set(self._escaped())
        if sign in "*+?{^$":
            raise self._wrong(f"{sign} is not possible here")
        self._at += 1
        return _Set(_ALPHABET if sign == "." else frozenset(sign))

    def _group(self) -> _Node:
        self._at += 1
        if self._peek() == "?" and not self._skip("?:"):
            raise self._wrong("look-around and options are not possible")
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._wrong("groups are nested too deep")
        node = self._choice()
        self._depth -= 1
        if not self._skip(")"):
            raise self._wrong("a group is not closed")
        return node

    def _escaped(self) -> frozenset[str]:
        sign = self._peek()
        self._at += 1
        if sign in _ESCAPED_SETS:
            return _ESCAPED_SETS[sign]
        if not sign or sign.isalnum():
            raise self._wrong("this escape is not possible")
        return frozenset(sign)

    def _class(self) -> _Node:
        is_negated = self._skip("^")
        members: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            low = self._member()
            is_range = self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]"
            if is_range and len(low) == 1:
                self._at += 1
                high = self._member()
                (first,), (last,) = low, (high if len(high) == 1 else " ")
                if last < first:
                    raise self._wrong("a range is the wrong way round")
                low = frozenset(each for each in _ALPHABET if first <= each <= last)
            members |= low
        self._at += 1
        return _Set(_ALPHABET - members if is_negated else frozenset(members))

    def _member(self) -> frozenset[str]:
        sign = self._peek()
        if not sign:
            raise self._wrong("a class is not closed")
        self._at += 1
        return self._escaped() if sign == "\\" else frozenset(sign)
