"""TLS: the listener's context, reloaded with its files, and the name in a client certificate.

A new certificate, key or authority applies to later handshakes; open connections stay. A pair that
does not fit leaves the old one in force. TLS 1.2 and later, no renegotiation, no compression, and
no session tickets: one issued under an old authority would outlive it.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from kafkalog.errors import InvalidConfig
from kafkalog.format.disk.credentials import principal_fault
from kafkalog.server.security.watched_files import WatchedFiles, file_fault, read_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalog.settings import ServerConfig

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_COMMON_NAME = "cn"
_ALTERNATIVE_NAMES = {"dns": "DNS", "email": "email", "uri": "URI"}


def watched_contexts(config: ServerConfig) -> WatchedFiles[ssl.SSLContext] | None:
    """The contexts of the files, the newest one current; None: plain HTTP. InvalidConfig."""
    paths = (config.http_tls_cert_file, config.http_tls_key_file, config.http_tls_client_ca_file)
    given = tuple(path for path in paths if path is not None)
    if not given:
        return None
    return WatchedFiles("http.tls.cert.file", given, lambda: _context(config))


def listening_context(contexts: WatchedFiles[ssl.SSLContext]) -> ssl.SSLContext:
    """The context of the listener: each handshake continues with the newest one."""

    def take_newest(connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        connection.context = contexts.current

    first = contexts.current
    first.sni_callback = take_newest  # called for each client, with a name or without
    return first


def _context(config: ServerConfig) -> ssl.SSLContext:
    certificate, key = config.http_tls_cert_file, config.http_tls_key_file
    authorities = config.http_tls_client_ca_file
    assert certificate is not None
    assert key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.http_tls_min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    read_file("http.tls.key.file", key, str, is_secret=True)

    def no_password() -> str:
        raise file_fault("http.tls.key.file", key, "is encrypted; give a key without password")

    try:
        context.load_cert_chain(certificate, key, no_password)
    except InvalidConfig:
        raise
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = f"does not make a pair with http.tls.key.file={key} ({_reason(error)})"
        raise file_fault("http.tls.cert.file", certificate, reason) from error
    if authorities is not None:
        try:
            context.load_verify_locations(cafile=authorities)
        except (OSError, ValueError) as error:
            reason = f"holds no certificates ({_reason(error)})"
            raise file_fault("http.tls.client.ca.file", authorities, reason) from error
        # Not required: probes and clients with other credentials have none; the gate decides.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _reason(error: Exception) -> str:
    """OpenSSL's short name of a fault, or the system's."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "unknown"
    return getattr(error, "strerror", None) or type(error).__name__


def certificate_principal(
    certificate: Mapping[str, object] | None, sources: Iterable[str]
) -> str | None:
    """Who a verified certificate (``SSLObject.getpeercert``) names, by the first source it has.

    ``cn`` is the last common name of the subject; ``dns``, ``email`` and ``uri`` the first
    alternative name of that kind. None: there is none, or no name that a rule could have.
    """
    if not certificate:
        return None
    for source in sources:
        names = (
            _common_names(certificate) if source == _COMMON_NAME else _others(certificate, source)
        )
        if names:
            return names[0] if principal_fault(names[0]) is None else None
    return None


def _common_names(certificate: Mapping[str, object]) -> list[str]:
    """The most specific one first."""
    subject = certificate.get("subject", ())
    assert isinstance(subject, tuple)
    return [value for parts in reversed(subject) for key, value in parts if key == "commonName"]


def _others(certificate: Mapping[str, object], source: str) -> list[str]:
    names = certificate.get("subjectAltName", ())
    assert isinstance(names, tuple)
    return [value for kind, value in names if kind == _ALTERNATIVE_NAMES[source]]
