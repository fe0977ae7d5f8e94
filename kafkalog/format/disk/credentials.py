"""Credentials: the hashes of passwords and tokens that the daemon stores.

A credentials file has one credential a line, of kind, principal and secret::

    # kind    principal  secret
    basic     alice      scrypt:16384:8:5:<salt>:<hash>     salt and hash in base64
    bearer    ci         sha256:<64 hex digits>

Passwords can be guessed and are stored as salted scrypt. Tokens are 256 random bits and are stored
as plain SHA-256. A principal has one password and any number of tokens. No error and no
representation contains a secret or a hash. Pure; any thread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

BASIC = "basic"
BEARER = "bearer"
SALT_BYTES = 16
TOKEN_BYTES = 32
# About 0.2 s and 16 MiB a try.
_COST, _BLOCK, _LANES = 16_384, 8, 5
_HASH_BYTES = 32
_MEMORY_BYTES_MAX = 256 << 20
_SCRYPT = re.compile(r"scrypt:([0-9]{1,7}):([0-9]{1,2}):([0-9]{1,2}):([^:]+):([^:]+)")
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """The scrypt hash of a password (RFC 7914)."""

    cost: int
    block: int
    lanes: int
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    @classmethod
    def of(cls, password: bytes, salt: bytes) -> PasswordHash:
        """The hash of a new password under a random salt of SALT_BYTES."""
        assert len(salt) == SALT_BYTES
        digest = _scrypt(password, salt, _COST, _BLOCK, _LANES, _HASH_BYTES)
        return cls(_COST, _BLOCK, _LANES, salt, digest)

    def matches(self, password: bytes) -> bool:
        """Whether it is this password. Slow on purpose; releases the interpreter lock."""
        tried = _scrypt(password, self.salt, self.cost, self.block, self.lanes, len(self.digest))
        return hmac.compare_digest(tried, self.digest)

    def encode(self) -> str:
        """As a line of the file."""
        salt, digest = (base64.b64encode(part).decode() for part in (self.salt, self.digest))
        return f"scrypt:{self.cost}:{self.block}:{self.lanes}:{salt}:{digest}"

    @classmethod
    def decode(cls, text: str) -> PasswordHash:
        """ValueError names the fault without the text."""
        found = _SCRYPT.fullmatch(text)
        if found is None:
            raise ValueError("a basic secret is scrypt:N:r:p:salt:hash")
        cost, block, lanes = (int(found[group]) for group in (1, 2, 3))
        if cost < 2 or cost & (cost - 1) or not block or not lanes:
            raise ValueError("scrypt takes a power of two and two positive numbers")
        if 128 * cost * block > _MEMORY_BYTES_MAX:
            raise ValueError(f"scrypt would take more than {_MEMORY_BYTES_MAX >> 20} MiB")
        try:
            salt, digest = (base64.b64decode(found[group], validate=True) for group in (4, 5))
        except binascii.Error:
            raise ValueError("salt and hash are base64") from None
        if len(salt) < 8 or len(digest) < 16:
            raise ValueError("salt or hash is too short")
        return cls(cost, block, lanes, salt, digest)


NO_PASSWORD = PasswordHash(_COST, _BLOCK, _LANES, bytes(SALT_BYTES), bytes(_HASH_BYTES))
"""Matches nothing, in the time of a real one, so that the time does not reveal unknown names."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A whole file."""

    passwords: Mapping[str, PasswordHash] = field(default_factory=dict)  # by principal
    tokens: Mapping[bytes, str] = field(default_factory=dict, repr=False)  # digest -> principal


def token_digest(token: bytes) -> bytes:
    """The stored hash of a token."""
    return hashlib.sha256(token).digest()


def basic_line(principal: str, password: PasswordHash) -> str:
    """A line of the file."""
    return f"{BASIC} {shlex.quote(principal)} {password.encode()}"


def bearer_line(principal: str, token: bytes) -> str:
    """A line of the file."""
    return f"{BEARER} {shlex.quote(principal)} sha256:{token_digest(token).hex()}"


def principal_fault(principal: str) -> str | None:
    """Why this is no name of a principal; None when it is one."""
    if not principal or len(principal) > 200 or not principal.isprintable():
        return "a principal has 1 to 200 printable characters"
    return "a principal has no '*'" if "*" in principal else None


def login_fault(principal: str) -> str | None:
    """Why this is no principal that a line of the file, or a Basic header, can name."""
    return principal_fault(principal) or ("it can have no ':'" if ":" in principal else None)


def decode_credentials(text: str) -> Credentials:
    """The credentials of a file's text; FormatError names the line of the first fault."""
    passwords: dict[str, PasswordHash] = {}
    tokens: dict[bytes, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            words = shlex.split(line, comments=True)
            if words:
                _keep(words, passwords, tokens)
        except ValueError as error:
            raise FormatError(f"line {number}: {error}") from None  # its text may hold a secret
    return Credentials(passwords, tokens)


def _keep(words: list[str], passwords: dict[str, PasswordHash], tokens: dict[bytes, str]) -> None:
    """Add one line; ValueError."""
    if len(words) != 3 or words[0] not in (BASIC, BEARER):
        raise ValueError("a credential is: basic|bearer principal secret")
    kind, principal, secret = words
    fault = login_fault(principal)
    if fault is not None:
        raise ValueError(fault)
    if kind == BASIC:
        if principal in passwords:
            raise ValueError("this principal has a password already")
        passwords[principal] = PasswordHash.decode(secret)
        return
    found = _SHA256.fullmatch(secret)
    if found is None:
        raise ValueError("a bearer secret is sha256: and 64 hex digits")
    digest = bytes.fromhex(found[1])
    if digest in tokens:
        raise ValueError("this token is on another line already")
    tokens[digest] = principal


def _scrypt(
    password: bytes, salt: bytes, cost: int, block: int, lanes: int, size_bytes: int
) -> bytes:
    return hashlib.scrypt(
        password,
        salt=salt,
        n=cost,
        r=block,
        p=lanes,
        maxmem=128 * block * (cost + lanes + 2) + (1 << 20),
        dklen=size_bytes,
    )
