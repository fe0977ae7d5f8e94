"""Goal: TLS serves, refuses and changes as the documentation says; certificates name principals.
Method: a daemon with certificates of openssl, clients of the standard library, files that change.
"""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.server.security.tls import certificate_principal
from tests.integration.access_world import RULES, access_settings, by, write
from tests.integration.daemon import Daemon
from tests.integration.http_world import refused
from tests.integration.tls_world import Authority, TlsDaemon, client

if TYPE_CHECKING:
    from collections.abc import Iterator
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
    """TLS 1.2 and 1.3, with the name indicated or not."""
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
    """Nothing below TLS 1.2, no HTTP on the port of TLS."""
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


def test_a_new_pair_serves_new_connections(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    """Goal: certificates change without a restart, open connections live; a wrong pair fails.
    Method: a pair of another authority under a running daemon, then a key that does not fit.
    """
    daemon = TlsDaemon(tmp_path, **tls_settings(tmp_path, authority.issue("server", SERVER_NAMES)))
    daemon.context = client(authority)
    with daemon:
        assert daemon.process is not None
        kept = daemon.connect(30)
        kept.request("GET", "/livez")
        assert kept.getresponse().read()
        new = stranger.issue("server", SERVER_NAMES)
        put_pair(tmp_path, new)
        daemon.process.send_signal(signal.SIGHUP)
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
        daemon.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        refusal = 'file_reloads_total{outcome="refused",setting="http.tls.cert.file"} 1.0'
        while refusal not in daemon.request("GET", "/metrics").body.decode():
            assert time.monotonic() < deadline, daemon.log_tail()
            time.sleep(0.05)  # another process reads the files
        assert daemon.request("GET", "/livez").status == 200


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("open key", "open to everybody"),
        ("other key", "does not make a pair"),
        ("no certificate", "No such file"),
        ("encrypted key", "is encrypted"),
        ("empty authorities", "holds no certificates"),
    ],
)
def test_wrong_files_at_the_start(
    tmp_path: Path, authority: Authority, what: str, fault: str
) -> None:
    """Goal: no start with a listener that nobody can use, or a key that everybody can read.
    Method: each file wrong in its way.
    """
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
    else:
        empty = write(tmp_path / "empty", "", 0o644)
        settings |= {"http_auth": "mtls", "http_tls_client_ca_file": str(empty)}
    daemon = Daemon(tmp_path, **settings)
    daemon.start(wait=False)
    assert daemon.process is not None
    assert daemon.process.wait(60) == 1
    daemon.process = None
    assert fault in daemon.log_tail()


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
