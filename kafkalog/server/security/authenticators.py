"""Authenticators: credentials of a request in, the name of a principal out.

Several may be in force (``http.auth``): the scheme of the Authorization header chooses one; without
the header it is the client certificate. A bearer token is one of the credentials file or a JWT. A
password takes 0.2 s to verify, so the result is cached under a keyed digest, that of a JWT until it
expires; a file that was read again clears the cache. Wrong and unknown passwords take the same time
and get the same answer. Passwords are verified on a pool.

``FailedTries`` limits wrong credentials per address. A try counts when it begins, so that parallel
ones are no way around; one that succeeds is given back. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import math
import os
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aiohttp import hdrs

from kafkalog.format.disk.credentials import BASIC, BEARER, NO_PASSWORD, Credentials, token_digest
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.security.tls import certificate_principal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from kafkalog.format.disk.credentials import PasswordHash


ANONYMOUS = "anonymous"
NONE, MTLS, JWT = "none", "mtls", "jwt"
_REALM = 'realm="kafkalog"'
_BEARER_CHALLENGE = f"Bearer {_REALM}"
_CHALLENGES = {
    BASIC: f'Basic {_REALM}, charset="UTF-8"',
    BEARER: _BEARER_CHALLENGE,
    JWT: _BEARER_CHALLENGE,
}
_REMEMBERED = 4096
_HEADER_CHARS = 8000  # JWTs have a few thousand
# Passwords that are tried at once: a storm of wrong ones leaves processors to the others.
_PASSWORDS_AT_ONCE = 2


class Verified(NamedTuple):
    """A verified principal, and until when that holds (wall clock, s)."""

    principal: str
    until_seconds: float = math.inf


class RefusedToken(Exception):
    """A JWT that is refused. The reason repeats nothing of it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ExpiredToken(RefusedToken):
    """A JWT that was valid and has expired: sending it again is no guess."""

    def __init__(self, verified: Verified) -> None:
        super().__init__("it has expired")
        self.verified = verified


class TokenVerifier(Protocol):
    """Verifies JWTs (``jwt.py``)."""

    def verify(self, token: str, now_seconds: float) -> Verified:
        """Who the token names; RefusedToken, ExpiredToken when nothing else is wrong with it."""


class Known(NamedTuple):
    """What is in force to verify credentials with; another object means that a file was read."""

    credentials: Credentials
    token_keys: TokenVerifier | None  # None: without jwt


class Authenticators:
    """See the module."""

    def __init__(
        self,
        schemes: tuple[str, ...],
        known: Callable[[], Known],
        tries: FailedTries,
        matches: Callable[[PasswordHash, bytes], Awaitable[bool]],
        certificate_sources: tuple[str, ...] = (),
        wall_seconds: Callable[[], float] = time.time,
    ) -> None:
        """``known`` gives what is in force; ``matches`` tries a password off the loop.

        ``certificate_sources``: fields of a client certificate that name it (``tls.py``).
        """
        # constant after construction
        self._schemes = schemes
        self._known = known
        self._tries = tries
        self._matches = matches
        self._certificate_sources = certificate_sources
        self._wall_seconds = wall_seconds
        self._key = os.urandom(32)
        self._offered = list(
            dict.fromkeys(_CHALLENGES[scheme] for scheme in schemes if scheme in _CHALLENGES)
        )
        # owned by the event loop
        self._passwords_at_once = asyncio.Semaphore(_PASSWORDS_AT_ONCE)
        self._remembered: dict[bytes, Verified] = {}
        self._remembered_from: Known | None = None

    async def principal_of(self, request: web.Request, now_seconds: float) -> str:
        """The principal; ApiError 40101 without valid credentials, 42901 after too many wrong ones.

        ``now_seconds`` is a monotonic clock.
        """
        if NONE in self._schemes:
            return ANONYMOUS  # whatever is sent is not verified
        headers = request.headers.getall(hdrs.AUTHORIZATION, [])
        if not headers:
            return self._without_header(request)
        header = headers[0]
        if len(headers) > 1 or len(header) > _HEADER_CHARS:
            raise self._refusal("One Authorization header of moderate size is understood.")
        scheme, given, mark = self._parts_of(header)
        known = self._known()
        self._forget_unless(known)
        remembered = self._remembered.get(mark)
        if remembered is not None:
            if self._wall_seconds() < remembered.until_seconds:
                return remembered.principal
            raise self._token_refusal(ExpiredToken(remembered))
        address = request.remote or ""
        wait_seconds = self._tries.begin(address, now_seconds)
        if wait_seconds:
            raise ApiError(
                42901,
                "Too many wrong credentials from this address; nothing was done.",
                headers={"Retry-After": str(wait_seconds)},
            )
        try:
            verified = await self._verified(scheme, given, known)
        except ExpiredToken as expired:
            self._tries.succeeded(address)
            self._remember(mark, expired.verified, known)
            raise self._token_refusal(expired) from None
        except RefusedToken as refused:
            raise self._token_refusal(refused) from None
        if verified is None:
            raise self._refusal("The credentials are wrong.")
        self._tries.succeeded(address)
        self._remember(mark, verified, known)
        return verified.principal

    def mark_of(self, header: str) -> bytes:
        """The digest by which an Authorization header is remembered."""
        return self._parts_of(header)[2]

    def digest_of(self, data: bytes) -> bytes:
        """By which bytes that may hold a secret can be recognised."""
        return hashlib.blake2b(data, key=self._key).digest()

    def remembered(self, mark: bytes | None) -> str | None:
        """The principal of an Authorization header, if it is known without asking anybody.

        None without one, for a client certificate's is not asked for here.
        """
        if NONE in self._schemes:
            return ANONYMOUS
        if mark is None:
            return None
        self._forget_unless(self._known())
        found = self._remembered.get(mark)
        if found is None or self._wall_seconds() >= found.until_seconds:
            return None
        return found.principal

    def _parts_of(self, header: str) -> tuple[str, str, bytes]:
        """Scheme and credentials, and the digest by which both are remembered."""
        scheme, _, given = header.partition(" ")
        scheme, given = scheme.lower(), given.strip()
        same = f"{scheme} {given}".encode("utf-8", "surrogateescape")
        return scheme, given, self.digest_of(same)

    def _remember(self, mark: bytes, verified: Verified, known: Known) -> None:
        """The principal of a header, also an expired one: that is refused without verification."""
        if known is self._remembered_from:  # no newer file came meanwhile
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[mark] = verified

    def _forget_unless(self, known: Known) -> None:
        """Forget what former files verified."""
        if known is not self._remembered_from:
            self._remembered.clear()
            self._remembered_from = known

    def _without_header(self, request: web.Request) -> str:
        """The client certificate's principal."""
        if MTLS in self._schemes and request.transport is not None:
            certificate = request.transport.get_extra_info("peercert")
            principal = certificate_principal(certificate, self._certificate_sources)
            if principal is not None:
                return principal
        raise self._refusal("Credentials are needed.")

    async def _verified(self, scheme: str, given: str, known: Known) -> Verified | None:
        """Who a header that was not seen before names; None or RefusedToken when it is wrong."""
        principal: str | None = None
        if scheme == BASIC and BASIC in self._schemes:
            principal = await self._basic(given, known.credentials)
        elif scheme == BEARER:
            if BEARER in self._schemes:
                principal = _bearer(given, known.credentials)
            if principal is None and known.token_keys is not None:
                return known.token_keys.verify(given, self._wall_seconds())
        return None if principal is None else Verified(principal)

    async def _basic(self, given: str, credentials: Credentials) -> str | None:
        try:
            decoded = base64.b64decode(given, validate=True)
        except (binascii.Error, ValueError):
            return None
        name, colon, password = decoded.partition(b":")
        principal = name.decode("utf-8", "replace")
        kept = credentials.passwords.get(principal) if colon else None
        async with self._passwords_at_once:
            is_right = await self._matches(kept or NO_PASSWORD, password)
        return principal if is_right and kept is not None else None

    def _token_refusal(self, refused: RefusedToken) -> ApiError:
        return self._refusal(f"The token is not taken: {refused.reason}.", refused.reason)

    def _refusal(self, message: str, token_fault: str = "") -> ApiError:
        """40101 with the accepted schemes; with ``token_fault`` as in RFC 6750."""
        offered = self._offered
        if token_fault:
            fault = f'error="invalid_token", error_description="{token_fault}"'
            offered = [
                f"{each}, {fault}" if each == _BEARER_CHALLENGE else each for each in offered
            ]
        headers: dict[str, str] = {}
        if offered:
            headers[hdrs.WWW_AUTHENTICATE] = ", ".join(offered)
        return ApiError(40101, message, headers=headers)


def _bearer(given: str, credentials: Credentials) -> str | None:
    """The principal of a token.

    The look-up is by the digest of what was given: its time reveals nothing of the digests that
    are kept, because a client cannot choose a digest.
    """
    digest = token_digest(given.encode("utf-8", "surrogateescape"))
    return credentials.tokens.get(digest)


_WINDOW_SECONDS = 60.0
# Addresses that are remembered: some hundred kilobytes; the oldest are forgotten first.
_ADDRESSES = 4096
_IPV6_SITE_BITS = 64  # one customer has that many addresses to himself


class FailedTries:
    """See the module. A window begins with an address's first failure."""

    def __init__(self, tries_per_minute: int) -> None:
        self._limit = tries_per_minute
        self._windows: dict[str, tuple[float, int]] = {}  # site -> (begin in s, tries)

    def begin(self, address: str, now_seconds: float) -> int:
        """Count a try; 0, or in how many seconds the next one is let in when they are used up."""
        site = _site_of(address)
        begin, tries = self._windows.get(site, (now_seconds, 0))
        if now_seconds - begin >= _WINDOW_SECONDS:
            begin, tries = now_seconds, 0
        if tries >= self._limit:
            return max(1, math.ceil(begin + _WINDOW_SECONDS - now_seconds))
        if site not in self._windows and len(self._windows) >= _ADDRESSES:
            del self._windows[next(iter(self._windows))]
        self._windows[site] = (begin, tries + 1)
        return 0

    def succeeded(self, address: str) -> None:
        """The try that was counted last was none."""
        site = _site_of(address)
        begin, tries = self._windows.get(site, (0.0, 0))
        if tries > 1:
            self._windows[site] = (begin, tries - 1)
        else:
            self._windows.pop(site, None)


def _site_of(address: str) -> str:
    """What counts as one address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address  # a socket of another kind
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _IPV6_SITE_BITS), strict=False))
