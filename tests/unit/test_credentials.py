"""Goal: credentials are kept as their file's documentation says, and no message shows one.
Method: lines made and read back, broken lines, tries at a simulated time.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.disk.credentials import (
    NO_PASSWORD,
    PasswordHash,
    basic_line,
    bearer_line,
    decode_credentials,
    login_fault,
    principal_fault,
    token_digest,
)
from kafkalog.format.integers import FormatError
from kafkalog.server.security.authenticators import FailedTries

SALT = bytes(range(16))
SOUND = "scrypt:16:8:1:AAAAAAAAAAAAAAAA:AAAAAAAAAAAAAAAAAAAAAAAA"


def test_scrypt_of_rfc_7914() -> None:
    """The hash is scrypt as everybody knows it."""
    digest = bytes.fromhex(
        "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162"
        "2eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640"
    )
    kept = PasswordHash(1024, 8, 16, b"NaCl", digest)
    assert kept.matches(b"password")
    assert not kept.matches(b"passwore")


def test_made_lines_are_read_back() -> None:
    """What the commands print is what the daemon reads."""
    password = PasswordHash.of("pässword".encode(), SALT)
    text = f"# people\n{basic_line('jane doe', password)}\n\n{bearer_line('ci', b'tok')} # build\n"
    read = decode_credentials(text)
    assert read.passwords["jane doe"].matches("pässword".encode())
    assert not read.passwords["jane doe"].matches(b"password")
    assert read.tokens == {token_digest(b"tok"): "ci"}
    assert not NO_PASSWORD.matches(b"")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("basic alice", "a credential is"),
        ("digest alice x", "a credential is"),
        ("basic alice hunter2secret", "a basic secret is"),
        (f"basic alice {SOUND.replace(':16:', ':17:')}", "a power of two"),
        (f"basic alice {SOUND.replace(':8:', ':0:')}", "positive"),
        (f"basic alice {SOUND.replace(':16:8', ':4194304:8')}", "256 MiB"),
        (f"basic alice {SOUND.replace('AAAA:', 'A!AA:')}", "base64"),
        ("basic alice scrypt:16:8:1:AAAA:AAAA", "too short"),
        (f"basic a:b {SOUND}", "no ':'"),
        (f"basic a* {SOUND}", "no '\\*'"),
        (f"basic ok {SOUND}\nbasic ok {SOUND}", "has a password already"),
        ("bearer ci hunter2secret", "64 hex digits"),
        (f"bearer ci sha256:{'0' * 64}\nbearer cd sha256:{'0' * 64}", "another line"),
        ("bearer 'ci", "No closing quotation"),
    ],
)
def test_a_fault_names_its_line_and_no_secret(line: str, fault: str) -> None:
    """An operator finds the fault; nobody finds the secret in the log."""
    number = 2 + line.count("\n")
    with pytest.raises(FormatError, match=f"^line {number}: .*{fault}") as refused:
        decode_credentials(f"# file\n{line}")
    assert "hunter2" not in refused.value.reason


def test_representations_hold_no_secret() -> None:
    """Nothing is printed by accident."""
    read = decode_credentials(f"basic alice {SOUND}\n{bearer_line('ci', b'tok')}")
    assert "b'" not in repr(read)


@given(st.text(max_size=120))
def test_any_text_is_credentials_or_refused(text: str) -> None:
    """No text raises anything but FormatError."""
    try:
        decode_credentials(text)
    except FormatError as error:
        assert error.reason.startswith("line ")  # noqa: PT017 - most texts are refused, not all


@pytest.mark.parametrize("name", ["", "a*", "a\nb", "a\0b", "x" * 201])
def test_names_that_are_none(name: str) -> None:
    """A principal can stand in a rule and in a log line, and is no address of a rate."""
    assert principal_fault(name)
    assert login_fault(name)


def test_only_a_login_has_no_colon() -> None:
    """URIs of certificates and names of service accounts are principals."""
    assert principal_fault("spiffe://x/y") is None
    assert login_fault("spiffe://x/y")
    assert login_fault("alice") is None


def test_tries_are_counted_by_address_and_forgotten_after_a_minute() -> None:
    """Ten wrong tries a minute, and no neighbour pays for them."""
    tries = FailedTries(10)
    assert [tries.begin("10.0.0.1", 100.0) for _ in range(10)] == [0] * 10
    assert tries.begin("10.0.0.1", 110.0) == 50
    assert tries.begin("::ffff:10.0.0.1", 110.0) == 50
    assert tries.begin("10.0.0.2", 110.0) == 0
    assert tries.begin("10.0.0.1", 160.0) == 0
    for host in range(10):
        assert tries.begin(f"2001:db8::{host:x}", 100.0) == 0
    assert tries.begin("2001:db8::ffff", 100.0) == 60
    assert tries.begin("2001:db8:0:1::", 100.0) == 0
    assert tries.begin("", 100.0) == 0


def test_a_try_that_succeeds_is_none() -> None:
    """Many right ones never lock anybody out."""
    tries = FailedTries(10)
    for number in range(100):
        assert tries.begin("a", 0.0) == 0
        if number % 12:
            tries.succeeded("a")
    assert tries.begin("a", 0.0) == 0
    assert tries.begin("a", 0.0) == 60


def test_remembered_addresses_are_bounded() -> None:
    """A storm from many addresses costs bounded memory."""
    tries = FailedTries(1)
    for number in range(5000):
        assert tries.begin(f"host-{number}", 0.0) == 0
    assert tries.begin("host-4999", 0.0) == 60
    assert tries.begin("host-0", 0.0) == 0
