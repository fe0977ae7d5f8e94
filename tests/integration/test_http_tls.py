"""Goal: TLS serves, refuses and changes as the documentation says; certificates and JWTs let in
whom they name.
Method: certificates of openssl, good and bad tokens, files that change under a daemon.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.server.security.tls import certificate_principal
from tests.integration.access_world import RULES, access_settings, ask, by, write
from tests.integration.daemon import TEXT, Daemon
from tests.integration.http_world import BATCHES, batch_of, end_offset, refused, until
from tests.integration.jwt_world import (
    by_token,
    claims_of,
    jwt_settings,
    key_set,
    public_jwk,
    token,
)
from tests.integration.tls_world import Authority, TlsDaemon, client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


SERVER_NAMES = "IP:127.0.0.1,DNS:kafkalog.test"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(root: Path) -> Authority:
    return Authority(root, "believed")


@pytest.fixture(scope="module")
def stranger(root: Path) -> Authority:
    return Authority(root, "stranger")


def tls_settings(root: Path, pair: tuple[Path, Path]) -> dict[str, Any]:
    """Copies of the pair under root, and the overrides that name them."""
    root.mkdir(parents=True, exist_ok=True)
    put_pair(root, pair)
    return {
        "http_tls_cert_file": str(root / "server.pem"),
        "http_tls_key_file": str(root / "server.key"),
    }


def put_pair(root: Path, pair: tuple[Path, Path]) -> None:
    """Key first, each whole: the daemon may look between the two."""
    write(root / "server.key", pair[1].read_text())
    write(root / "server.pem", pair[0].read_text(), 0o644)


@pytest.fixture(scope="module")
def served(root: Path, authority: Authority) -> Iterator[TlsDaemon]:
    """Every way in at once: passwords, tokens and certificates of one authority."""
    files = root / "served"
    daemon = TlsDaemon(
        files,
        **tls_settings(files, authority.issue("server", SERVER_NAMES)),
        **{**access_settings(files, RULES), "http_auth": "basic,bearer,mtls"},
        http_tls_client_ca_file=str(authority.path),
        http_mtls_principal="dns,cn",
    )
    daemon.context = client(authority)
    with daemon:
        yield daemon
        assert "Unhandled" not in daemon.log_path.read_text(), daemon.log_tail()


def as_client(daemon: TlsDaemon, context: ssl.SSLContext) -> int:
    """The status of a question that the reader and the admin may ask."""
    former, daemon.context = daemon.context, context
    try:
        return daemon.request("GET", "/topics/t-none").status
    finally:
        daemon.context = former


def test_credentials_over_tls(served: TlsDaemon, authority: Authority) -> None:
    """Tokens work as over plain HTTP, links say https, probes need no certificate."""
    assert served.request("GET", "/readyz").status == 200
    assert served.request("GET", "/topics/t-none", None, by("reader")).status == 404
    refused(served.request("GET", "/topics/t-none"), 401, 40101)
    found = served.request("GET", "/v3/clusters", None, by("admin")).body
    assert b"https://127.0.0.1" in found
    assert "https://" in served.log_path.read_text()


def test_certificates_name_principals(
    served: TlsDaemon, authority: Authority, stranger: Authority
) -> None:
    """A certificate of the believed authority is its principal, another ends the handshake."""
    assert as_client(served, client(authority, authority.issue("admin"))) == 404
    assert as_client(served, client(authority, authority.issue("denied"))) == 403
    by_dns = authority.issue("somebody", "DNS:admin")
    assert as_client(served, client(authority, by_dns)) == 404
    assert as_client(served, client(authority, authority.issue(""))) == 401
    with pytest.raises((ssl.SSLError, OSError)):
        as_client(served, client(authority, stranger.issue("admin")))
    former, served.context = served.context, client(authority, authority.issue("denied"))
    try:
        assert served.request("GET", "/topics/t-none", None, by("reader")).status == 404
    finally:
        served.context = former


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(served: TlsDaemon, authority: Authority, version: ssl.TLSVersion) -> None:
    context = client(authority)
    context.minimum_version = context.maximum_version = version
    for name in ("127.0.0.1", "kafkalog.test"):
        with (
            socket.create_connection(("127.0.0.1", served.port), 10) as plain,
            context.wrap_socket(plain, server_hostname=name) as secure,
        ):
            assert secure.version() == version.name.replace("v1_", "v1.")
            secure.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert secure.recv(100).startswith(b"HTTP/1.1 200")


def test_older_versions_and_plain_bytes(served: TlsDaemon, authority: Authority) -> None:
    context = client(authority)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, OSError)):
        as_client(served, context)
    assert b"HTTP" not in answer_to(served, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    assert served.request("GET", "/livez").status == 200


def answer_to(daemon: TlsDaemon, said: bytes) -> bytes:
    """What comes back for plain bytes until the daemon closes, which it must soon."""
    with socket.create_connection(("127.0.0.1", daemon.port), 60) as plain:
        plain.sendall(said)
        try:
            return plain.recv(1000)
        except ConnectionError:
            return b""


def test_a_handshake_that_hangs_is_ended(tmp_path: Path, authority: Authority) -> None:
    """Who connects and says nothing is closed after http.tls.handshake.timeout.ms."""
    settings = tls_settings(tmp_path, authority.issue("server", SERVER_NAMES))
    daemon = TlsDaemon(tmp_path, **settings, http_tls_handshake_timeout_ms="700")
    daemon.context = client(authority)
    with daemon:
        begun = time.monotonic()
        assert answer_to(daemon, b"") == b""
        # Not 0.7: the clock of a loop counts whole milliseconds from when its turn began.
        assert 0.65 < time.monotonic() - begun < 9  # by default it is 10 s
        daemon.stop()


def test_raw_appends(tmp_path: Path, authority: Authority) -> None:
    """Without authentication the front of a connection answers them, over TLS too."""
    daemon = TlsDaemon(tmp_path, **tls_settings(tmp_path, authority.issue("server", SERVER_NAMES)))
    daemon.context = client(authority)
    with daemon:
        daemon.create_topic("raw")
        kept = daemon.connect(30)
        offsets = []
        for size in (1, 1, 1000, 200_000, 17_000, 1):
            batch = batch_of(b"x" * size)
            path = "/v1/topics/raw/partitions/0/batches"
            kept.request("POST", path, batch, {"Content-Type": BATCHES})
            offsets.append(json.loads(kept.getresponse().read())["base_offset"])
        assert offsets == [0, 1, 2, 3, 4, 5]
        assert kept.sock is not None
        small = batch_of(b"x")
        request = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\n"
            f"Accept-Encoding: identity\r\nContent-Length: {len(small)}\r\n"
            f"Content-Type: {BATCHES}\r\n\r\n"
        ).encode() + small
        kept.sock.sendall(
            request * 300 + b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        said = b""
        while piece := kept.sock.recv(1 << 16):
            said += piece
        kept.close()
        assert said.count(b"HTTP/1.1 200") == 301
        assert end_offset(daemon, "raw") == 306


def test_a_new_pair_serves_new_connections(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    """Certificates change without a restart, open connections live; a wrong pair fails."""
    daemon = TlsDaemon(tmp_path, **tls_settings(tmp_path, authority.issue("server", SERVER_NAMES)))
    daemon.context = client(authority)
    with daemon:
        kept = daemon.connect(30)
        kept.request("GET", "/livez")
        assert kept.getresponse().read()
        new = stranger.issue("server", SERVER_NAMES)
        put_pair(tmp_path, new)
        os.kill(daemon.pid, signal.SIGHUP)
        deadline = time.monotonic() + 60
        daemon.context = client(stranger)
        while True:
            try:
                assert daemon.request("GET", "/livez").status == 200
                break
            except ssl.SSLError:
                assert time.monotonic() < deadline, daemon.log_tail()
                time.sleep(0.05)  # another process reads the files
        kept.request("GET", "/livez")
        assert kept.getresponse().status == 200
        kept.close()
        write(tmp_path / "server.key", authority.issue("other")[1].read_text())
        os.kill(daemon.pid, signal.SIGHUP)
        refusal = 'file_reloads_total{outcome="refused",setting="http.tls.cert.file"} 1.0'
        until(lambda: refusal in daemon.request("GET", "/metrics").body.decode())
        assert daemon.request("GET", "/livez").status == 200


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("open key", "open to everybody"),
        ("other key", "does not make a pair"),
        ("no certificate", "No such file"),
        ("encrypted key", "is encrypted"),
        ("empty authorities", "holds no certificates"),
        ("no key set", "http.jwt.jwks.file"),
    ],
)
def test_wrong_files_at_the_start(
    tmp_path: Path, authority: Authority, what: str, fault: str
) -> None:
    """No start with a listener that nobody can use, or a key that everybody can read."""
    from tests.integration.tls_world import openssl

    settings = tls_settings(tmp_path, authority.issue("server", SERVER_NAMES))
    key = tmp_path / "server.key"
    if what == "open key":
        key.chmod(0o644)
    elif what == "other key":
        shutil.copy(authority.issue("other")[1], key)
    elif what == "no certificate":
        (tmp_path / "server.pem").unlink()
    elif what == "encrypted key":
        openssl("ec", "-in", str(key), "-aes128", "-passout", "pass:x", "-out", str(key))
    elif what == "no key set":
        settings |= settings_of(tmp_path)
        write(tmp_path / "jwks.json", "{}", 0o644)
    else:
        empty = write(tmp_path / "empty", "", 0o644)
        settings |= {"http_auth": "mtls", "http_tls_client_ca_file": str(empty)}
    assert fault in Daemon(tmp_path, **settings).refused_start()


def test_names_of_certificates() -> None:
    """The last common name, the first alternative name; what no rule can hold is nobody."""
    subject = ((("organizationName", "o"),), (("commonName", "a"),), (("commonName", "b"),))
    others = (("DNS", "d.example"), ("email", "e@example"), ("URI", "spiffe://x/y"))
    whole: dict[str, object] = {"subject": subject, "subjectAltName": others}
    assert certificate_principal(whole, ("cn",)) == "b"
    assert certificate_principal(whole, ("dns",)) == "d.example"
    assert certificate_principal(whole, ("email", "cn")) == "e@example"
    assert certificate_principal(whole, ("uri",)) == "spiffe://x/y"
    assert certificate_principal({"subject": subject}, ("email", "cn")) == "b"
    assert certificate_principal({"subject": ()}, ("cn", "dns")) is None
    assert certificate_principal({"subject": ((("commonName", "*"),),)}, ("cn",)) is None
    assert certificate_principal(None, ("cn",)) is None


JWT_RULES = (
    "allow alice read,write,create topic t-*\nallow admin all topic *\nallow admin all cluster\n"
)
BARE = 'Basic realm="kafkalog", charset="UTF-8", Bearer realm="kafkalog"'
FETCH = "/topics/t-1/partitions/0/records?offset=0"


def settings_of(root: Path) -> dict[str, Any]:
    files = access_settings(root, JWT_RULES) | jwt_settings(root, "rsa-1", "ed-1")
    return files | {"http_auth": "basic,bearer,jwt", "http_auth_tries_per_minute": "1000"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root = tmp_path_factory.mktemp("guarded")
    with Daemon(root, **settings_of(root)) as daemon:
        yield daemon
        assert "Unhandled" not in daemon.log_path.read_text(), daemon.log_tail()


def test_a_token_lets_in_whom_it_names(guarded: Daemon) -> None:
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


def test_a_refusal(guarded: Daemon) -> None:
    """401/40101 that says why as RFC 6750 has it, and not a word of the token anywhere."""
    given = token(claims_of("alice", exp=int(time.time()) - 60))
    answer = guarded.request("GET", "/topics", None, {"Authorization": f"Bearer {given}"})
    body = refused(answer, 401, 40101)
    assert body["message"] == "The token is not taken: it has expired."
    expected = f'{BARE}, error="invalid_token", error_description="it has expired"'
    assert answer.headers["WWW-Authenticate"] == expected
    for part in given.split("."):
        assert part not in guarded.log_path.read_text()


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
    """A new key is soon taken, an old one soon refused, a broken file never in force."""
    old = by_token("alice")
    new = {"Authorization": f"Bearer {token(claims_of('alice'), 'rsa-2')}"}
    path = tmp_path / "jwks.json"

    def reloaded(seen: Callable[[], bool]) -> None:
        os.kill(daemon.pid, signal.SIGHUP)
        until(seen)

    def answers(headers: dict[str, str], status: int) -> bool:
        return daemon.request("GET", "/topics/t-9", None, headers).status == status

    settings = settings_of(tmp_path) | {"http_auth_tries_per_minute": "100000"}
    with Daemon(tmp_path, **settings) as daemon:
        assert answers(old, 404)
        assert answers(new, 401)
        write(path, key_set("rsa-2"), 0o644)
        reloaded(lambda: answers(new, 404))
        assert answers(old, 401)
        write(path, json.dumps({"keys": [public_jwk("rsa-1", d="AQAB")]}), 0o644)
        reloaded(lambda: "key 0 is a secret one" in daemon.log_path.read_text())
        assert answers(new, 404)
        assert answers(old, 401)
        write(path, key_set("rsa-1"), 0o644)
        reloaded(lambda: answers(old, 404))
