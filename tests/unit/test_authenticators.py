"""Goal: what was verified is remembered as long as it holds, and schemes do not mix.
Method: requests without a server, verifiers that count, clocks of our own.
"""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

import pytest
from aiohttp.test_utils import make_mocked_request

from kafkalog.format.disk.credentials import Credentials, PasswordHash, token_digest
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.security.authenticators import (
    Authenticators,
    ExpiredToken,
    FailedTries,
    Known,
    RefusedToken,
    Verified,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

PASSWORDS = {"alice": PasswordHash.of(b"right", bytes(16))}
CREDENTIALS = Credentials(PASSWORDS, {token_digest(b"static"): "robot"})
ALICE = "Basic " + base64.b64encode(b"alice:right").decode()


class CountingKeys:
    """A verifier that takes one token, until a moment."""

    def __init__(self, until_seconds: float = 100.0) -> None:
        self.calls = 0
        self.until_seconds = until_seconds

    def verify(self, token: str, now_seconds: float) -> Verified:
        self.calls += 1
        if token != "good":
            raise RefusedToken("it has expired")
        verified = Verified("federated", self.until_seconds)
        if now_seconds >= self.until_seconds:
            raise ExpiredToken(verified)
        return verified


class World:
    """Authenticators with what they know, and a wall clock."""

    def __init__(self, *schemes: str, keys: CountingKeys | None = None) -> None:
        self.known = Known(CREDENTIALS, keys)
        self.now = 0.0
        self.authenticators = Authenticators(
            schemes, lambda: self.known, FailedTries(5), _matches, wall_seconds=lambda: self.now
        )

    def ask(self, header: str) -> str:
        """The principal of a header."""
        request = make_mocked_request("GET", "/", {"Authorization": header})
        return asyncio.run(self.authenticators.principal_of(request, 0.0))

    def refused(self, header: str) -> ApiError:
        with pytest.raises(ApiError) as caught:
            self.ask(header)
        return caught.value


def _matches(kept: PasswordHash, password: bytes) -> Awaitable[bool]:
    async def answer() -> bool:
        return kept.matches(password)

    return answer()


def test_a_token_is_remembered_until_it_expires() -> None:
    """No second check of a signature, and nobody goes on behind the end."""
    keys = CountingKeys()
    world = World("jwt", keys=keys)
    for now in (0.0, 50.0, 99.0):
        world.now = now
        assert world.ask("Bearer good") == "federated"
    assert keys.calls == 1
    world.now = 100.0
    assert world.refused("Bearer good").entry.error_code == 40101


def test_other_keys_forget_what_was_verified() -> None:
    """A key that is taken back lets nobody in any more."""
    world = World("basic", "jwt", keys=CountingKeys())
    assert world.ask("Bearer good") == "federated"
    assert world.ask(ALICE) == "alice"
    world.known = Known(CREDENTIALS, CountingKeys(until_seconds=0.0))
    world.refused("Bearer good")
    assert world.ask(ALICE) == "alice"


def test_static_tokens_come_before_jwts() -> None:
    """Both kinds of bearer tokens side by side, each only where it is named."""
    keys = CountingKeys()
    both = World("bearer", "jwt", keys=keys)
    assert (both.ask("Bearer static"), keys.calls) == ("robot", 0)
    assert both.ask("Bearer good") == "federated"
    World("jwt", keys=keys).refused("Bearer static")
    World("bearer").refused("Bearer good")


@pytest.mark.parametrize("word", ["mtls", "jwt", "none", "bearer"])
def test_a_password_comes_in_by_basic_alone(word: str) -> None:
    """A scheme that is not offered is not taken under another one's word."""
    world = World("bearer", "mtls", "jwt", keys=CountingKeys())
    world.refused(f"{word} {ALICE.partition(' ')[2]}")
    world.refused(ALICE)


def test_what_a_refusal_offers() -> None:
    """RFC 6750's error for a token that was sent, the bare challenges else, each once."""
    world = World("basic", "bearer", "jwt", keys=CountingKeys())
    bare = 'Basic realm="kafkalog", charset="UTF-8", Bearer realm="kafkalog"'
    assert world.refused("Basic AAAA").headers["WWW-Authenticate"] == bare
    said = world.refused("Bearer bad").headers["WWW-Authenticate"]
    assert said == f'{bare}, error="invalid_token", error_description="it has expired"'


@pytest.mark.parametrize("was_used", [True, False])
def test_an_expired_token_is_no_guess(was_used: bool) -> None:
    """A client that does not renew its token locks nobody out, and costs one signature."""
    keys = CountingKeys()
    world = World("jwt", keys=keys)
    if was_used:
        world.ask("Bearer good")
    world.now = 100.0
    for spaces in range(1, 20):
        refusal = world.refused(f"Bearer{' ' * spaces}good")
        assert refusal.entry.error_code == 40101
        assert "it has expired" in refusal.message
    assert keys.calls == 1
    for number in range(5):
        assert world.refused(f"Bearer {number}").entry.error_code == 40101
    assert world.refused("Bearer 5").entry.error_code == 42901
    assert world.refused("Bearer good").entry.error_code == 40101


def test_wrong_tokens_count_as_tries() -> None:
    """Nobody makes us check signatures without end."""
    keys = CountingKeys()
    world = World("jwt", keys=keys)
    for number in range(5):
        assert world.refused(f"Bearer {number}").entry.error_code == 40101
    assert world.refused("Bearer 5").entry.error_code == 42901
    assert keys.calls == 5
