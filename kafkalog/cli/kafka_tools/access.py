"""How Kafka's tools reach the daemon: --bootstrap-server, and the properties file of a client.

Owns what the properties of a Kafka client mean here: TLS with files in PEM, and a user name with a
password (SASL PLAIN), which becomes HTTP Basic. Other mechanisms and key stores are refused. Every
other property is named on standard error, because it has no effect.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkalog.cli.connection import Command, open_client, with_credentials
from kafkalog.cli.kafka_tools.tool import ToolFailed, report_ignored
from kafkalog.client import Basic, Bearer, Tls
from kafkalog.format.disk.properties import decode_properties
from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PROTOCOLS = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
_PEM_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_KNOWN = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        "ssl.truststore.location",
        "ssl.keystore.location",
        *_PEM_TYPES,
    }
)
_JAAS_PAIR = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class ToolAccess:
    """TLS and credentials in a client's properties; None when they have none."""

    is_secure: bool = False
    credentials: Basic | None = None
    tls: Tls | None = None

    def url(self, bootstrap: str) -> str:
        """The address, with https if the protocol is secure and it names no scheme."""
        return f"https://{bootstrap}" if self.is_secure and "//" not in bootstrap else bootstrap


def read_properties(file: str) -> dict[str, str]:
    """A Java properties file. ToolFailed."""
    try:
        return decode_properties(Path(file).read_bytes())
    except OSError as error:
        raise ToolFailed(f"{file} cannot be read: {error.strerror}") from error
    except FormatError as error:
        raise ToolFailed(f"{file} is not a properties file: {error}") from error


def access_of(properties: Mapping[str, str]) -> ToolAccess:
    """TLS and credentials in the properties. Raises ToolFailed."""
    report_ignored(properties, _KNOWN)
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ToolFailed(f"security.protocol is one of {', '.join(_PROTOCOLS)}, not {protocol}")
    is_secure, has_sasl = _PROTOCOLS[protocol]
    for name in _PEM_TYPES:
        store = name.removesuffix("type") + "location"
        if is_secure and store in properties and properties.get(name, "JKS").upper() != "PEM":
            raise ToolFailed(f"{name} must be PEM: kafkalog reads no key stores of Java")
    tls = Tls(properties.get("ssl.truststore.location"), properties.get("ssl.keystore.location"))
    return ToolAccess(
        is_secure,
        _plain(properties) if has_sasl else None,
        tls if is_secure and tls != Tls() else None,
    )


def _plain(properties: Mapping[str, str]) -> Basic:
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    if mechanism != "PLAIN":
        raise ToolFailed(f"sasl.mechanism must be PLAIN, not {mechanism}")
    given = dict(_JAAS_PAIR.findall(properties.get("sasl.jaas.config", "")))
    try:
        name, password = (re.sub(r"\\(.)", r"\1", given[key]) for key in ("username", "password"))
        return Basic(name, password)
    except KeyError as error:
        raise ToolFailed(f"sasl.jaas.config has no {error.args[0]}") from error
    except ValueError as error:
        raise ToolFailed(f"sasl.jaas.config: {error}") from error


def client_of_tool(config_option: str = "--command-config") -> Callable[[Command], Command]:
    """Add --bootstrap-server, which is required, credentials and the tool's properties file.

    The command gets ``client``. Credentials and TLS of the file take precedence over those of the
    options, because the environment may set these.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def connected(
            *args: object,
            bootstrap: str,
            properties_file: str | None,
            credentials: Basic | Bearer | None,
            tls: Tls | None,
            **options: object,
        ) -> None:
            properties = {} if properties_file is None else read_properties(properties_file)
            access = access_of(properties)
            url = access.url(bootstrap)
            found = access.credentials or credentials
            with open_client(url, found, access.tls or tls) as client:
                command(*args, client=client, **options)

        where = click.option(
            "--bootstrap-server",
            "bootstrap",
            required=True,
            help="Address of the daemon: HOST:PORT or a URL.",
        )
        file = click.option(
            config_option,
            "properties_file",
            help="Properties file of a client: TLS, user name, password.",
        )
        return with_credentials(where(file(connected)))

    return decorate
