"""Goal: a JWT lets in whom it names, over HTTP, with the keys of the file as it is now.
Method: a daemon with jwt beside passwords; good and bad tokens; a file that changes under it.
"""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.access_world import access_settings, ask, write
from tests.integration.daemon import TEXT, Daemon
from tests.integration.http_world import refused
from tests.integration.jwt_world import (
    by_token,
    claims_of,
    jwt_settings,
    key_set,
    public_jwk,
    token,
    unsigned,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RULES = (
    "allow alice read,write,create topic t-*\nallow admin all topic *\nallow admin all cluster\n"
)
BARE = 'Basic realm="kafkalog", charset="UTF-8", Bearer realm="kafkalog"'
FETCH = "/topics/t-1/partitions/0/records?offset=0"


def settings_of(root: Path) -> dict[str, Any]:
    files = access_settings(root, RULES) | jwt_settings(root, "rsa-1", "ed-1")
    return files | {"http_auth": "basic,bearer,jwt", "http_auth_tries_per_minute": "1000"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root = tmp_path_factory.mktemp("guarded")
    with Daemon(root, **settings_of(root)) as daemon:
        yield daemon
        assert "Unhandled" not in daemon.log_path.read_text(), daemon.log_tail()


def test_a_token_lets_in_whom_it_names(guarded: Daemon) -> None:
    """The principal of a token meets the rules like any other; other schemes go on."""
    records = {"records": [{"value": "x"}]}
    headers = by_token("alice") | {"Content-Type": TEXT}
    assert guarded.request("POST", "/topics/t-1", records, headers).status == 200
    for _ in range(2):
        answer = guarded.request("GET", FETCH, None, by_token("alice") | {"Accept": TEXT})
        assert [record["value"] for record in answer.json] == ["x"]
    refused(guarded.request("GET", "/topics/x-1", None, by_token("alice")), 403, 40301)
    refused(guarded.request("GET", FETCH, None, by_token("bob")), 403, 40301)
    signed = token(claims_of("alice"), "ed-1", "EdDSA")
    both = {"Authorization": f"bearer {signed}"}
    assert guarded.request("GET", "/topics/t-1", None, both).status == 200
    assert ask(guarded, "alice", "GET", "/topics/t-1").status == 200
    lines = [json.loads(line) for line in guarded.log_path.read_text().splitlines()]
    denied = [line for line in lines if line["event"] == "Denied"]
    assert {line["principal"] for line in denied} >= {"alice", "bob"}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: token(claims_of("alice", exp=int(time.time()) - 60)), "it has expired"),
        (lambda: token(claims_of("alice", nbf=int(time.time()) + 600)), "it is not valid yet"),
        (lambda: token(claims_of("alice", aud="others")), "it is for another audience"),
        (lambda: token(claims_of("alice", iss="https://evil/")), "it is of another issuer"),
        (lambda: token(claims_of("alice"), "rsa-evil"), "no key fits it"),
        (
            lambda: token(claims_of("alice"), "rsa-evil", headers={"kid": "rsa-1"}),
            "it is malformed, or its signature is wrong",
        ),
        (
            lambda: unsigned({"alg": "none", "kid": "rsa-1"}, claims_of("alice"), "AA"),
            "its algorithm is not allowed",
        ),
        (
            lambda: unsigned({"alg": "HS256", "kid": "rsa-1"}, claims_of("alice"), "AA"),
            "its algorithm is not allowed",
        ),
        (lambda: unsigned({"alg": "none"}, claims_of("alice")), "it is no signed JWT"),
        (lambda: "wrong", "it is no signed JWT"),
        (str, "it is no signed JWT"),
    ],
)
def test_refusals(guarded: Daemon, make: Callable[[], str], reason: str) -> None:
    """401/40101 that says why as RFC 6750 has it, and not a word of the token anywhere."""
    given = make()
    answer = guarded.request("GET", "/topics", None, {"Authorization": f"Bearer {given}"})
    body = refused(answer, 401, 40101)
    assert body["message"] == f"The token is not taken: {reason}."
    expected = f'{BARE}, error="invalid_token", error_description="{reason}"'
    assert answer.headers["WWW-Authenticate"] == expected
    if len(given) > 50:
        for part in given.split("."):
            assert len(part) < 20 or part not in guarded.log_path.read_text()


def test_huge_tokens(guarded: Daemon) -> None:
    """A token costs no more than a request's header may."""
    for size, status, code in ((8_050, 401, 40101), (20_000, 431, 431)):
        headers = {"Authorization": "Bearer " + "x" * size}
        refused(guarded.request("GET", "/topics", None, headers), status, code)
    refused(guarded.request("GET", "/topics"), 401, 40101)
    large = by_token("alice", groups=["a-group-of-a-large-company"] * 120)
    assert 4_500 < len(large["Authorization"]) < 8_000
    assert guarded.request("GET", "/topics/t-1", None, large).status == 200


def test_keys_change_under_the_daemon(tmp_path: Path) -> None:
    """Goal: a new key is soon taken, an old one soon refused, a broken file never in force.
    Method: replace the file and ask until it is seen, with a deadline.
    """
    old = by_token("alice")
    new = {"Authorization": f"Bearer {token(claims_of('alice'), 'rsa-2')}"}
    path = tmp_path / "jwks.json"

    def until(seen: Callable[[], bool]) -> None:
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while not seen():
            assert time.monotonic() < deadline, daemon.log_tail()
            time.sleep(0.05)  # another process reads the file

    def answers(headers: dict[str, str], status: int) -> bool:
        return daemon.request("GET", "/topics/t-9", None, headers).status == status

    settings = settings_of(tmp_path) | {"http_auth_tries_per_minute": "100000"}
    with Daemon(tmp_path, **settings) as daemon:
        assert answers(old, 404)
        assert answers(new, 401)
        write(path, key_set("rsa-2"), 0o644)
        until(lambda: answers(new, 404))
        assert answers(old, 401)
        write(path, json.dumps({"keys": [public_jwk("rsa-1", d="AQAB")]}), 0o644)
        until(lambda: "key 0 is a secret one" in daemon.log_path.read_text())
        assert answers(new, 404)
        assert answers(old, 401)
        write(path, key_set("rsa-1"), 0o644)
        until(lambda: answers(old, 404))


@pytest.mark.parametrize(
    ("text", "mode", "fault"),
    [
        ("{}", 0o644, "a key set is"),
        (key_set("rsa-1"), 0o666, "can be written by everybody"),
    ],
)
def test_a_wrong_file_at_the_start(tmp_path: Path, text: str, mode: int, fault: str) -> None:
    """The daemon does not come up with keys that nobody gave it."""
    settings = settings_of(tmp_path)
    write(tmp_path / "jwks.json", text, mode)
    daemon = Daemon(tmp_path, **settings)
    daemon.start(wait=False)
    assert daemon.process is not None
    assert daemon.process.wait(60) == 1
    daemon.process = None
    assert fault in daemon.log_tail()
    assert "http.jwt.jwks.file" in daemon.log_tail()
