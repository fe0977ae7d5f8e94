"""Shared by Kafka's tools: how they fail, how they reach the daemon, their key=value options.

A tool's errors have Kafka's words and status 1, without the stack trace or the whole help that
follow them in Kafka.

The properties of a Kafka client mean here: TLS with files in PEM, and a user name with a password
(SASL PLAIN), which becomes HTTP Basic. Other mechanisms and key stores are refused. Every other
property is named on standard error, because it has no effect.

Source of the options with topics: `TopicFilter` of Kafka 4.1. Differs from Kafka: the expressions
are RE2's (`TopicPattern`), without look-around and back references.
"""

from __future__ import annotations

import functools
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from kafkalog import __version__
from kafkalog.cli.connection import Command, open_client, with_credentials
from kafkalog.client import Basic, Bearer, Tls
from kafkalog.client.messages import Address
from kafkalog.format.disk.properties import decode_properties
from kafkalog.format.integers import FormatError
from kafkalog.format.suggestions import did_you_mean
from kafkalog.format.topic_names import is_internal
from kafkalog.format.topic_pattern import MalformedPattern, TopicPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalog.cli.connection import Command


class ToolFailed(click.ClickException):
    """The tool's message, alone on its line as the tool prints it; exit status 1."""

    to_stdout = False

    def show(self, file: IO[Any] | None = None) -> None:
        """On the stream that the tool uses, always as UTF-8."""
        click.echo(self.message.encode("utf-8", "replace"), file=file, err=not self.to_stdout)


class ToolFailedOnStdout(ToolFailed):
    """The same on standard output, where some of the tools print their failures."""

    to_stdout = True


def uncaught(reason: str) -> ToolFailed:
    """Of a wrong option, by a tool that does not catch what its parser throws."""
    exception = "joptsimple.UnrecognizedOptionException"
    return ToolFailed(f'Exception in thread "main" {exception}: {reason}')


_ARGUMENTS = "kafkalog.cli.kafka_tools.arguments"


KAFKA_VERSION = "4.1.0"
"""The tools are those of this Kafka."""


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"{KAFKA_VERSION} (kafkalog {__version__})")
        ctx.exit()


_VERSION = click.Option(
    ["--version"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print Kafka's version, of which the tools are, and kafkalog's.",
)


class ToolCommand(click.Command):
    """A command with the grammar of Kafka's tools: options may not be shortened, nor given twice.

    It keeps its arguments as typed, because tools repeat them in messages. Arguments that are no
    options have no effect. ``wrong`` makes the failure of a wrong option from its words,
    ``unknown`` that of an unknown one; ``missing`` are the words about one that is required.
    """

    allow_extra_args = True

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's
        unknown: Callable[[str], ToolFailed] = ToolFailed,
        wrong: Callable[[str], ToolFailed] = ToolFailed,
        missing: str = 'Missing required argument "[{}]"',
        **attributes: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*args, **attributes)
        self.params.append(_VERSION)
        self._unknown, self._wrong, self._missing = unknown, wrong, missing

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep a copy, then parse. Raises ToolFailed."""
        ctx.meta[_ARGUMENTS] = tuple(args)
        given: dict[str, Any] = {}
        try:
            given, _, order = self.make_parser(ctx).parse_args(list(args))
            for option in order:
                if order.count(option) > 1 and not (option.multiple or option.is_flag):  # type: ignore[attr-defined]  # all are options
                    name = _bare(option)
                    raise self._wrong(
                        f"Found multiple arguments for option {name}, but you asked for only one"
                    )
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            message = f"{error.option_name.lstrip('-')} is not a recognized option"
            like = did_you_mean(error.option_name, error.possibilities or ())
            raise self._unknown(message + like.replace("; did", "\nDid")) from error
        except click.BadOptionUsage as error:
            name = error.option_name.lstrip("-")
            raise self._unknown(f"Option {name} requires an argument") from error
        except click.MissingParameter as error:
            if error.param is None:
                raise
            raise ToolFailed(self._missing.format(_bare(error.param))) from error
        except click.BadParameter as error:
            refused = error.param
            if refused is None or refused.name not in given:
                raise
            value = f"'{given[refused.name]}' of option {_bare(refused)}"
            raise self._wrong(f"Cannot parse argument {value}") from error


def _bare(option: click.Parameter) -> str:
    return option.opts[0].lstrip("-")


def number_fault(configs: Mapping[str, str]) -> str | None:
    """Kafka's words about the first value that is no number; a unit (7d), too, is none to Kafka."""
    from kafkalog.settings.setting import Kind, parse_value
    from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL

    for key, text in configs.items():
        setting = TOPIC_LEVEL.get(key) or BROKER_LEVEL.get(key)
        if setting is None or setting.kind not in (Kind.INT, Kind.LONG, Kind.DOUBLE):
            continue
        try:
            parse_value(setting.kind, text)
        except ValueError:
            kind = setting.kind.value.upper()
            return f"Invalid value {text} for configuration {key}: Not a number of type {kind}"
    return None


def typed_arguments() -> tuple[str, ...]:
    """The arguments of the running ToolCommand as typed."""
    typed: tuple[str, ...] = click.get_current_context().meta[_ARGUMENTS]
    return typed


def without_effect(*names: str, reason: str) -> Callable[[Command], Command]:
    """Options that scripts pass and that have no effect here; reported on standard error."""

    def tell(_: click.Context, option: click.Parameter, value: str | None) -> None:
        if value is not None:
            click.echo(f"{option.opts[0]} has no effect: {reason}", err=True)

    def decorate(command: Command) -> Command:
        for name in reversed(names):
            help_text = f"No effect: {reason}."
            command = click.option(name, callback=tell, expose_value=False, help=help_text)(command)
        return command

    return decorate


def missing_here(*names: str, is_flag: bool) -> Callable[[Command], Command]:
    """Options that the tool's messages name and that do not exist here; refused when given."""

    def refuse(_: click.Context, option: click.Parameter, value: str | bool | None) -> None:
        if value not in (None, False):
            raise ToolFailed(
                f"Option {option.opts[0]} does not exist here: docs/reference/kafka-tools.md"
            )

    def decorate(command: Command) -> Command:
        for name in names:
            command = click.option(
                name,
                is_flag=is_flag,
                callback=refuse,
                expose_value=False,
                hidden=True,
                help="Missing here.",
            )(command)
        return command

    return decorate


def key_values(texts: Iterable[str]) -> dict[str, str]:
    """``--property key=value`` options: the last one of a key counts; without = it is empty."""
    parts = (text.partition("=") for text in texts)
    return {key: value for key, _, value in parts}


def is_true(properties: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Whether the property is ``true``, in any letter case."""
    text = properties.get(name)
    return default if text is None else text.strip().lower() == "true"


def report_ignored(properties: Mapping[str, str], known: Iterable[str]) -> None:
    """Name the properties that have no effect on standard error."""
    for name in sorted(properties.keys() - set(known)):
        click.echo(f"The property {name} has no effect here", err=True)


# ---- topics that an option matches


def topic_pattern(text: str) -> TopicPattern:
    """The names that an option lists or describes, separated by commas. Raises ToolFailed.

    Quotes at the ends, which a properties file may contain, are removed.
    """
    expression = re.sub(r"^[\"']+|[\"']+$", "", text.strip().replace(",", "|").replace(" ", ""))
    try:
        return TopicPattern(expression)
    except MalformedPattern as error:
        raise ToolFailed(f"{expression} is an invalid regex.") from error


def matching(names: Iterable[str], text: str | None, *, with_internal: bool = True) -> list[str]:
    """The names that the option matches, in their order; None: all."""
    pattern = None if text is None else topic_pattern(text)
    return [
        name
        for name in names
        if (with_internal or not is_internal(name)) and (pattern is None or pattern.matches(name))
    ]


# ---- the connection to the daemon


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
_CONNECT_SECONDS = 5.0  # then the next address of a list
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


def first_that_answers(bootstrap: str) -> str:
    """The first address of a list that takes a connection; the last when no other does.

    One that is malformed is answered for by what uses it.
    """
    *others, last = [part for part in re.split(r"[\s,]+", bootstrap) if part] or [bootstrap]
    for address in others:
        try:
            at = Address.of(address)
        except ValueError:
            return address
        try:
            with socket.create_connection((at.host, at.port), _CONNECT_SECONDS):
                return address
        except OSError:
            continue
    return last


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
            url = access.url(first_that_answers(bootstrap))
            found = access.credentials or credentials
            with open_client(url, found, access.tls or tls) as client:
                command(*args, client=client, **options)

        where = click.option(
            "--bootstrap-server",
            "bootstrap",
            required=True,
            help="Address of the daemon: HOST:PORT or a URL. Of a list the first that answers.",
        )
        file = click.option(
            config_option,
            "properties_file",
            help="Properties file of a client: TLS, user name, password.",
        )
        return with_credentials(where(file(connected)))

    return decorate
