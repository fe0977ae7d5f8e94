"""Requests, answers, addresses, credentials and TLS as values.

No sockets, clocks and randomness: `client.py` and `async_client.py` carry the values over HTTP.
"""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

Json = dict[str, Any]
"""An answer of the administrative routes, as docs/reference/http.md describes it."""

JSON = "application/json"
BATCHES = "application/vnd.kafkalog.record-batches"
BINARY = "application/vnd.kafka.binary.v2+json"
DEFAULT_URL = "http://127.0.0.1:8082"

_DEFAULT_PORT = 8082


class Repeat(Enum):
    """When a request whose try failed may be sent again."""

    ALWAYS = "always"
    """Idempotent requests: reads, absolute changes, appends with a producer id."""
    IF_NOTHING_WAS_DONE = "if nothing was done"
    """Only when it is certain that the failed try changed nothing."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``path`` is quoted; ``body`` is sent unchanged."""

    method: str
    path: str
    query: Mapping[str, str | int] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    repeat: Repeat = Repeat.ALWAYS
    wait_seconds: float = 0.0
    """How long the daemon may take to answer, beyond the client's timeout."""

    @property
    def target(self) -> str:
        """Path and query. Raises UnwritableName."""
        if not self.query:
            return self.path
        try:
            return f"{self.path}?{urlencode(self.query)}"
        except UnicodeEncodeError as error:
            raise _unwritable(error) from error

    @property
    def is_read(self) -> bool:
        """Whether it cannot change anything."""
        return self.method == "GET"

    def headers(self) -> dict[str, str]:
        """The headers except credentials and length."""
        headers = {"Accept": self.accept, "User-Agent": "kafkalog-client"}
        if self.body is not None:
            headers["Content-Type"] = self.content_type
        return headers


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - what the daemon sent
        """The body as JSON, None for an empty one. Raises ValueError."""
        return json.loads(self.body) if self.body else None


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The outcome of a try without an answer.

    was_sent     whether the daemon may have received a part of the request
    is_hopeless  a retry would fail for the same reason: the certificate is not trusted
    may_be_down  whether the reason may be that no daemon runs there
    """

    reason: str
    was_sent: bool
    is_hopeless: bool = False
    may_be_down: bool = False


class EmptyName(ValueError):
    """An empty name of a topic or group: its path would be another one."""


class UnwritableName(ValueError):
    """A name that UTF-8 cannot encode: half of a surrogate pair, or bytes of a command line."""


def path_of(*names: str | int) -> str:
    """A path of names, each one segment. Raises EmptyName, UnwritableName."""
    if "" in names:
        raise EmptyName("The name of a topic or group is empty")
    try:
        return "/" + "/".join(quote(str(name), safe=":") for name in names)
    except UnicodeEncodeError as error:
        raise _unwritable(error) from error


def _unwritable(error: UnicodeEncodeError) -> UnwritableName:
    return UnwritableName(f"{error.object!a} is not a name: it is not UTF-8")


def given(**fields: T | None) -> dict[str, T]:
    """The fields that are not None: for members and parameters that may be left out."""
    return {name: value for name, value in fields.items() if value is not None}


def json_body(document: object) -> bytes:
    """A JSON document as a body."""
    return json.dumps(document).encode()


@dataclass(frozen=True, slots=True)
class Address:
    """Where the daemon listens."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Address:
        """``http://host:port`` or ``https://host:port``; the default port is 8082.

        Raises ValueError for a path, a query or credentials, which would be ignored.
        """
        parts = urlsplit(url if "//" in url else f"http://{url}")
        port = parts.port or _DEFAULT_PORT
        has_more = parts.path not in ("", "/") or parts.query or parts.username is not None
        if parts.scheme not in ("http", "https") or not parts.hostname or has_more:
            raise ValueError("not http(s)://host:port")
        return cls(parts.scheme, parts.hostname, port)

    @property
    def is_secure(self) -> bool:
        """Whether it uses TLS."""
        return self.scheme == "https"

    @property
    def is_loopback(self) -> bool:
        """Whether it can only be this machine."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Basic:
    """A user and a password. Raises ValueError for a user with a colon."""

    user: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if ":" in self.user:
            raise ValueError("A user name cannot contain a colon")

    def authorization(self) -> str:
        """The value of the header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token. Raises ValueError for one that a header cannot carry."""

    token: str = field(repr=False)

    def __post_init__(self) -> None:
        if not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ValueError("A token is printable ASCII")  # without the token itself

    def authorization(self) -> str:
        """The value of the header."""
        return f"Bearer {self.token}"


Credentials = Basic | Bearer


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM. ``ca_file``: CA certificates to trust instead of the system's.

    ``key_file`` is not needed when ``certificate_file`` contains the key.
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Reads the files. Raises OSError, ssl.SSLError and, for a key alone, ValueError."""
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("A client key needs its certificate")
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except ssl.SSLError as error:
            raise ssl.SSLError(error.errno, f"{self.ca_file} is no PEM certificate") from error
        if self.certificate_file is not None:
            try:
                context.load_cert_chain(self.certificate_file, self.key_file)
            except ssl.SSLError as error:
                raise ssl.SSLError(error.errno, self._pair_fault(error)) from error
        return context

    def _pair_fault(self, error: ssl.SSLError) -> str:
        key = self.key_file or self.certificate_file
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"{key} is not the key of {self.certificate_file}"
        if self.key_file is None:
            return f"{key} is no PEM certificate with its key"
        return f"{self.certificate_file} is no PEM certificate, or {key} no PEM key"


def context_for(address: Address, tls: Tls | ssl.SSLContext | None) -> ssl.SSLContext | None:
    """The context to connect with, None for plain HTTP. Raises as ``Tls.context``."""
    if not address.is_secure:
        if tls is not None:
            raise ValueError("TLS needs an address with https://")
        return None
    if isinstance(tls, ssl.SSLContext):
        return tls
    return (tls or Tls()).context()
