"""Goal: both clients and the command line prove who they are by password, token and certificate,
believe only the authority they were told, and give no secret away.
Method: a daemon with TLS, every way in and access rules; clients that are right, wrong, unknown.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from kafkalog.client import (
    ONE_TRY,
    AccessDenied,
    Basic,
    Bearer,
    ConnectFailed,
    NotAuthenticated,
    ProducerRecord,
    Tls,
)
from tests.integration.access_world import PASSWORD, RULES, access_settings, token_of, write
from tests.integration.client_world import KINDS, client_of
from tests.integration.test_cli_over_http import run_plain
from tests.integration.tls_world import Authority, TlsDaemon, client as context_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALICE = "allow alice all topic *\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("access")


@pytest.fixture(scope="module")
def authority(root: Path) -> Authority:
    return Authority(root, "believed")


@pytest.fixture(scope="module")
def served(root: Path, authority: Authority) -> Iterator[TlsDaemon]:
    certificate, key = authority.issue("server", "IP:127.0.0.1")
    daemon = TlsDaemon(
        root / "served",
        http_tls_cert_file=str(certificate),
        http_tls_key_file=str(key),
        http_tls_client_ca_file=str(authority.path),
        **{**access_settings(root / "served", RULES + ALICE), "http_auth": "basic,bearer,mtls"},
    )
    daemon.context = context_of(authority)
    with daemon:
        yield daemon
        log = daemon.log_path.read_text()
        assert PASSWORD not in log
        assert token_of("writer") not in log


def url_of(daemon: TlsDaemon) -> str:
    return f"https://127.0.0.1:{daemon.port}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_in(served: TlsDaemon, authority: Authority, kind: str) -> None:
    topic, believed = f"t-{kind}", Tls(str(authority.path))
    with client_of(kind, url_of(served), credentials=Basic("alice", PASSWORD), tls=believed) as a:
        a.create_topic(topic)
        a.produce(topic, [ProducerRecord("v")], partition=0)
    writer = Bearer(token_of("writer"))
    with client_of(kind, url_of(served), credentials=writer, tls=believed) as w:
        w.produce(topic, [ProducerRecord("w")], partition=0)
        with pytest.raises(AccessDenied) as denied:
            w.fetch(topic, 0, 0)
        assert denied.value.error_code == 40301
        assert denied.value.nothing_was_done
    certificate, key = authority.issue("reader")
    mine = Tls(str(authority.path), str(certificate), str(key))
    with client_of(kind, url_of(served), tls=mine) as r:
        assert [record.value for record in r.fetch(topic, 0, 0).records] == [b"v", b"w"]
        with pytest.raises(AccessDenied):
            r.produce(topic, [ProducerRecord("x")], partition=0)
    own_context = context_of(authority, (certificate, key))
    with client_of(kind, url_of(served), tls=own_context) as r:
        assert r.offset_range(topic, 0) == (0, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_and_strangers(
    served: TlsDaemon, root: Path, authority: Authority, kind: str
) -> None:
    """No credentials: 401. A certificate of nobody known: not a byte is sent, not a second lost."""
    believed = Tls(str(authority.path))
    with client_of(kind, url_of(served), tls=believed) as nobody:
        with pytest.raises(NotAuthenticated) as unknown:
            nobody.list_topics()
        assert unknown.value.error_code == 40101
    wrong = Bearer("hush-hush-wrong")
    with client_of(kind, url_of(served), credentials=wrong, tls=believed) as one:
        with pytest.raises(NotAuthenticated) as refused:
            one.list_topics()
        assert "hush" not in str(refused.value)
    stranger = Authority(root / kind, "stranger")
    began = time.monotonic()
    for tls in (Tls(str(stranger.path)), None):
        with client_of(kind, url_of(served), credentials=wrong, tls=tls) as one:
            with pytest.raises(ConnectFailed, match=r"(?i)certificate") as doubted:
                one.list_topics()
            assert not doubted.value.retriable
            assert doubted.value.nothing_was_done
    assert time.monotonic() - began < 10, "it was tried again"
    plain = f"http://127.0.0.1:{served.port}"
    with client_of(kind, plain, retries=ONE_TRY) as one, pytest.raises(Exception, match="answer"):
        one.list_topics()


def test_the_command_line(served: TlsDaemon, root: Path, authority: Authority) -> None:
    password = str(write(root / "password", f"{PASSWORD}\n"))
    token = str(write(root / "token", f"{token_of('writer')}\n"))
    where = ("--url", url_of(served), "--ca-file", str(authority.path))
    alice = ("--user", "alice", "--password-file", password)
    made = run_plain("topics", "create", "t-cli", *where, *alice)
    assert (made.returncode, made.stdout) == (0, b"Created topic t-cli.\n"), made.stderr
    assert (
        run_plain("produce", "t-cli", *where, "--token-file", token, stdin=b"x\n").returncode == 0
    )
    certificate, key = authority.issue("reader")
    mine = ("--client-cert", str(certificate), "--client-key", str(key))
    read = run_plain("consume", "t-cli", "--from-beginning", "-e", *where, *mine)
    assert (read.returncode, read.stdout) == (0, b"x\n")
    environment = {
        "KAFKALOG_URL": url_of(served),
        "KAFKALOG_CA_FILE": str(authority.path),
        "KAFKALOG_USER": "alice",
        "KAFKALOG_PASSWORD_FILE": password,
    }
    assert b"t-cli\n" in run_plain("topics", "list", environment=environment).stdout
    file = write(
        root / "offsets.json", '{"partitions":[{"topic":"t-cli","partition":0,"offset":1}]}'
    )
    tool = ("compat", "kafka-delete-records", "--offset-json-file", str(file))
    deleted = run_plain(*tool, "--bootstrap-server", url_of(served), environment=environment)
    assert b"partition: t-cli-0\tlow_watermark: 1\n" in deleted.stdout
    denied = run_plain("consume", "t-cli", "-e", *where, "--token-file", token)
    assert denied.returncode == 1
    assert b"Error: Not authorized" in denied.stderr
    nobody = run_plain("topics", "list", *where)
    assert nobody.returncode == 1
    doubted = run_plain("topics", "list", "--url", url_of(served), *alice)
    assert doubted.returncode == 1
    assert b"certificate" in doubted.stderr.lower()
    assert b"Is the daemon running" not in doubted.stderr
    for wrong in (
        ("--user", "alice"),
        (*alice, "--token-file", token),
        ("--token-file", str(root / "missing")),
        ("--client-key", str(key)),
    ):
        refused = run_plain("topics", "list", *where, *wrong)
        assert refused.returncode == 2, wrong
        assert b"Traceback" not in refused.stderr
        assert PASSWORD.encode() not in refused.stderr
    plain = run_plain(
        "topics", "list", "--url", "http://127.0.0.1:1", "--ca-file", str(authority.path)
    )
    assert plain.returncode == 2
