"""Certificates made by openssl, and a daemon that is spoken to over TLS."""

from __future__ import annotations

import http.client
import ssl
import subprocess
from typing import TYPE_CHECKING

from tests.integration.daemon import Daemon

if TYPE_CHECKING:
    from pathlib import Path

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(*arguments: str) -> None:
    """Run it; its complaint is the test's."""
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True)


class Authority:
    """A certificate authority in a directory of its own."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root / name
        self._root.mkdir(parents=True)
        self.path = self._root / "ca.pem"
        openssl(
            "req", "-x509", *_KEY, "-keyout", str(self._root / "ca.key"), "-out", str(self.path),
            "-subj", f"/CN={name}", "-days", "2",
        )  # fmt: skip

    def issue(self, name: str, alternatives: str = "") -> tuple[Path, Path]:
        """Certificate and key (0600) of a common name; ``alternatives`` as DNS:a,email:b."""
        stem = str(self._root / name.replace(" ", "_"))
        openssl(
            "req", *_KEY, "-keyout", f"{stem}.key", "-out", f"{stem}.csr",
            "-subj", f"/O=tests/CN={name}" if name else "/O=tests",
        )  # fmt: skip
        extensions = self._root / "extensions"
        extensions.write_text(f"subjectAltName={alternatives}\n" if alternatives else "")
        openssl(
            "x509", "-req", "-in", f"{stem}.csr", "-CA", str(self.path),
            "-CAkey", str(self._root / "ca.key"), "-CAcreateserial", "-days", "2",
            "-extfile", str(extensions), "-out", f"{stem}.pem",
        )  # fmt: skip
        certificate, key = self._root / f"{stem}.pem", self._root / f"{stem}.key"
        key.chmod(0o600)
        return certificate, key


class TlsDaemon(Daemon):
    """``context`` is the client's; change it to speak as somebody else."""

    context: ssl.SSLContext

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        """See Daemon; the certificate's name is 127.0.0.1, for which no name is indicated."""
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=timeout, context=self.context
        )


def client(authority: Authority, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """A client that believes the authority, with its own certificate or without."""
    context = ssl.create_default_context(cafile=str(authority.path))
    if pair is not None:
        context.load_cert_chain(*pair)
    return context
