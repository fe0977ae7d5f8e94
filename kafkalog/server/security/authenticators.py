"""Authenticators: from what a request carries to the name of a principal.

Several are in force at once (``http.auth``); the scheme of the Authorization header chooses, and
without one the client certificate. What
was verified is remembered under a keyed digest, because a password costs 0.2 s: a new credentials
file forgets it all. Wrong and unknown credentials cost the same time and get the same answer.
Owned by the event loop; passwords are tried on a pool.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
from typing import TYPE_CHECKING

from aiohttp import hdrs

from kafkalog.format.credentials import BASIC, BEARER, NO_PASSWORD, token_digest
from kafkalog.server.error_map import ApiError
from kafkalog.server.security.tls import certificate_principal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from kafkalog.format.credentials import Credentials, PasswordHash
    from kafkalog.server.security.failed_tries import FailedTries

ANONYMOUS = "anonymous"
NONE, MTLS = "none", "mtls"
_REALM = 'realm="kafkalog"'
_CHALLENGES = {BASIC: f'Basic {_REALM}, charset="UTF-8"', BEARER: f"Bearer {_REALM}"}
_REMEMBERED = 4096
_HEADER_CHARS = 4096
# Passwords that are tried at once: a storm of wrong ones leaves processors to the others.
_PASSWORDS_AT_ONCE = 2


class Authenticators:
    """See the module."""

    def __init__(
        self,
        schemes: tuple[str, ...],
        credentials: Callable[[], Credentials],
        tries: FailedTries,
        matches: Callable[[PasswordHash, bytes], Awaitable[bool]],
        certificate_sources: tuple[str, ...] = (),
    ) -> None:
        """``credentials`` gives those in force; ``matches`` tries a password off the loop.

        ``certificate_sources``: where in a client certificate its principal stands (``tls.py``).
        """
        # constant after construction
        self._schemes = schemes
        self._credentials = credentials
        self._tries = tries
        self._matches = matches
        self._certificate_sources = certificate_sources
        self._key = os.urandom(32)
        offered = [_CHALLENGES[scheme] for scheme in schemes if scheme in _CHALLENGES]
        self._challenge: dict[str, str] = {}
        if offered:
            self._challenge[hdrs.WWW_AUTHENTICATE] = ", ".join(offered)
        # owned by the event loop
        self._passwords_at_once = asyncio.Semaphore(_PASSWORDS_AT_ONCE)
        self._known: dict[bytes, str] = {}
        self._known_from: Credentials | None = None

    async def principal_of(self, request: web.Request, now_seconds: float) -> str:
        """Who asks; ApiError 40101 without valid credentials, 42901 after too many wrong ones."""
        if NONE in self._schemes:
            return ANONYMOUS  # whatever is sent: nobody would look at it
        headers = request.headers.getall(hdrs.AUTHORIZATION, [])
        if not headers:
            return self._without_header(request)
        header = headers[0]
        if len(headers) > 1 or len(header) > _HEADER_CHARS:
            raise self._refusal("One Authorization header of moderate size is understood.")
        credentials = self._credentials()
        if credentials is not self._known_from:
            self._known.clear()
            self._known_from = credentials
        mark = hashlib.blake2b(header.encode("utf-8", "surrogateescape"), key=self._key).digest()
        known = self._known.get(mark)
        if known is not None:
            return known
        address = request.remote or ""
        wait_seconds = self._tries.begin(address, now_seconds)
        if wait_seconds:
            raise ApiError(
                42901,
                "Too many wrong credentials from this address; nothing was done.",
                headers={"Retry-After": str(wait_seconds)},
            )
        principal = await self._verified(header, credentials)
        if principal is None:
            raise self._refusal("The credentials are wrong.")
        self._tries.succeeded(address)
        if credentials is self._known_from:  # no newer file came meanwhile
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[mark] = principal
        return principal

    def _without_header(self, request: web.Request) -> str:
        """The client certificate's principal."""
        if MTLS in self._schemes and request.transport is not None:
            certificate = request.transport.get_extra_info("peercert")
            principal = certificate_principal(certificate, self._certificate_sources)
            if principal is not None:
                return principal
        raise self._refusal("Credentials are needed.")

    async def _verified(self, header: str, credentials: Credentials) -> str | None:
        """The principal of a header that was not seen before; None when it is wrong."""
        scheme, _, given = header.partition(" ")
        scheme, given = scheme.lower(), given.strip()
        if scheme not in self._schemes:
            return None
        if scheme == BEARER:
            return _bearer(given, credentials)
        return await self._basic(given, credentials)

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

    def _refusal(self, message: str) -> ApiError:
        return ApiError(40101, message, headers=self._challenge)


def _bearer(given: str, credentials: Credentials) -> str | None:
    """The principal of a token.

    The look-up goes by the digest of what was given: its time tells nothing about the digests that
    are kept, because nobody can choose one.
    """
    digest = token_digest(given.encode("utf-8", "surrogateescape"))
    return credentials.tokens.get(digest)
