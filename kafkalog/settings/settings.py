"""Settings: the complete configuration with the source of each value, created by ``load_settings``.

Precedence: ``--override``, environment, file, default. Values are parsed by the declaration tables;
the rest of the program gets frozen ``BrokerConfig``, ``ServerConfig`` and ``LogConfig``. Reads no
file (except through ``read_file``), environment or clock and logs nothing: warnings are returned as
``notices``, because logging is configured from the result. Source of the cross checks: Kafka's
``KafkaConfig.validateValues``.

Environment variables follow the rule of Apache Kafka's container image: the prefix is removed and
the rest lower-cased; then ``___`` is ``-``, ``__`` is ``_`` and ``_`` is ``.``. ``KAFKALOG_`` has
precedence over ``KAFKA_``, which has precedence over ``KAFKA_CFG_``. The variable of a known key
with the suffix ``_FILE`` names a file that holds the value, for mounted secrets. Variables that
start scripts set, and those that Kubernetes sets for a Service, are ignored.
"""

from __future__ import annotations

import enum
import hashlib
import ipaddress
import re
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kafkalog.broker.broker_config import BrokerConfig, cordoned_fault
from kafkalog.errors import InvalidConfig, InvalidTopicConfig
from kafkalog.format.disk.properties import binary_fault, decode_numbered_properties
from kafkalog.format.integers import FormatError
from kafkalog.format.suggestions import did_you_mean, mistyped
from kafkalog.settings.dynamic_configs import (
    broker_with_dynamic,
    cleaner_fault,
    describe_broker_config,
    describe_topic_config,
    parse_dynamic,
    parse_topic_config,
    plain_texts,
    topic_default,
    topic_defaults,
    with_dynamic,
    without_values,
)
from kafkalog.settings.listeners import http_listener
from kafkalog.settings.server_config import ServerConfig, overlap
from kafkalog.settings.setting import Scope, Setting, Value, format_value
from kafkalog.settings.tables import BROKER_LEVEL, NO_EFFECT, NOT_APPLICABLE_PREFIXES, TOPIC_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from kafkalog.broker.broker_config import LogDirConfig
    from kafkalog.broker.values import ConfigEntry
    from kafkalog.cleaner.config import LogCleanerConfig
    from kafkalog.log.log_config import LogConfig


CFG_PREFIX = "KAFKA_CFG_"
_PREFIXES = (CFG_PREFIX, "KAFKA_", "KAFKALOG_")  # weakest first

# Variables of Kafka's start scripts and of this project's own tools and commands.
_NOT_SETTINGS = re.compile(
    r"KAFKA_(?:.*_OPTS|OPTS|JMX_.*|LOG4J_.*|VERSION|HOME|CLUSTER_ID|GC_LOG.*|MODE)"
    r"|KAFKALOG_(?:KERNEL_CACHE|ORACLE|ORACLE_.*|VERSION|HOME|SERVER_PROPERTIES)"
    r"|KAFKALOG_(?:URL|OUTPUT|USER|PASSWORD_FILE|TOKEN_FILE|CA_FILE|CLIENT_CERT|CLIENT_KEY)"
)
# KAFKALOG_SERVICE_HOST, KAFKALOG_PORT_8082_TCP_ADDR
_SERVICE_ADDRESS = re.compile(r".+_(?:SERVICE_HOST|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_[A-Z]+)?)")
# KAFKALOG_SERVICE_PORT_HTTP, KAFKALOG_PORT: of the service in front
_SERVICE_PORT = re.compile(r"(.+?)_(?:SERVICE_PORT(?:_.*)?|PORT)")
_LINK_VALUE = re.compile(r"(?:tcp|udp|sctp)://")  # KAFKALOG_PORT=tcp://...
_UNDERSCORES = re.compile(r"_{1,3}")
_MEANING = {"_": ".", "__": "_", "___": "-"}
_FILE_SUFFIX = "_FILE"


def key_of_variable(suffix: str) -> str:
    """``LOG_RETENTION_MS`` to ``log.retention.ms``; suffix is the name without its prefix."""
    return _UNDERSCORES.sub(lambda found: _MEANING[found.group()], suffix.lower())


def settings_of_environment(
    environment: Mapping[str, str], read_file: Callable[[str], str]
) -> dict[str, _Given]:
    """Key -> text of every variable that is a setting.

    read_file gives the content of the file of that path; a line end at its end is no part of the
    value. InvalidConfig when a variable is set both with ``_FILE`` and without; errors of
    read_file.
    """
    found: dict[str, _Given] = {}
    for prefix in _PREFIXES:
        for variable in sorted(environment):
            if not variable.startswith(prefix) or _NOT_SETTINGS.fullmatch(variable):
                continue
            if prefix == "KAFKA_" and variable.startswith(CFG_PREFIX):
                continue
            suffix, value = variable.removeprefix(prefix), environment[variable]
            key = key_of_variable(suffix)
            plain = _without_file(suffix)
            if plain is not None:
                if prefix + plain in environment:
                    message = f"{prefix}{plain} and {variable} are both set: one of them"
                    raise InvalidConfig(message, key=key_of_variable(plain))
                text = read_file(value).removesuffix("\n").removesuffix("\r")
                found[key_of_variable(plain)] = _Given(
                    text, Source.ENVIRONMENT, variable, is_hidden=True
                )
                continue
            is_link = _LINK_VALUE.match(value) or (
                key not in BROKER_LEVEL and _is_of_service(variable, environment)
            )
            if suffix and not is_link:
                found[key] = _Given(value, Source.ENVIRONMENT, variable)
    return found


def _is_of_service(variable: str, environment: Mapping[str, str]) -> bool:
    """Whether Kubernetes set it for a service of that name."""
    if _SERVICE_ADDRESS.fullmatch(variable):
        return True
    port = _SERVICE_PORT.fullmatch(variable)
    return port is not None and f"{port[1]}_SERVICE_HOST" in environment


def _without_file(suffix: str) -> str | None:
    """``HTTP_PORT`` of ``HTTP_PORT_FILE``; None of a key's own name (``HTTP_AUTH_FILE``)."""
    plain = suffix.removesuffix(_FILE_SUFFIX)
    if plain == suffix or key_of_variable(suffix) in BROKER_LEVEL:
        return None
    return plain if key_of_variable(plain) in BROKER_LEVEL else None


_LISTENERS = "listeners"
_OTHERWISE_NAMED = {"port": "http.port", "host.name": "http.host"}  # of Kafka before 3.0
_NO_BROKER_ID = -1  # Kafka's default of broker.id: there is none yet
_NOTHING: Mapping[str, str] = MappingProxyType({})
_NO_FILES: Mapping[str, bytes] = MappingProxyType({})

# A name, a domain suffix, or any; addresses are accepted too.
_HOST_ENTRY = re.compile(r"\*|(\*?\.)?[A-Za-z0-9_~-]+(\.[A-Za-z0-9_~-]+)*|\[[0-9A-Fa-f:.]+\]")

HIDDEN = "***"
"""Shown instead of a secret value."""


class Source(enum.Enum):
    """Where a value came from, strongest first."""

    OVERRIDE = "override"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ResolvedValue:
    """One broker-level value. origin names the file or variable that gave it.

    is_hidden: it was read from a file of its own, as secrets are, and is never shown. place: for
    errors, what to edit; "" of a default.
    """

    setting: Setting
    value: Value
    source: Source
    origin: str = ""
    is_hidden: bool = False
    place: str = ""

    @property
    def text(self) -> str | None:
        """As Kafka prints it."""
        return format_value(self.value)

    @property
    def shown_text(self) -> str | None:
        """For people."""
        return HIDDEN if self.is_hidden else self.text


@dataclass(frozen=True, slots=True)
class _Given:
    """The text of a key and its source, before it is parsed."""

    text: str
    source: Source
    origin: str = ""
    is_hidden: bool = False
    line: int = 0  # of the file

    @property
    def shown_text(self) -> str:
        return HIDDEN if self.is_hidden else self.text.strip()

    @property
    def place(self) -> str:
        """Where it is edited."""
        if self.source is Source.FILE:
            return f"{self.origin}:{self.line}" if self.origin else f"line {self.line}"
        return self.origin or "--override"


@dataclass(frozen=True, slots=True)
class Notice:
    """A line for the log, once logging works. level is a structlog method name."""

    level: str
    message: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration of one process."""

    values: Mapping[str, ResolvedValue]
    broker: BrokerConfig
    server: ServerConfig
    notices: tuple[Notice, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of every key with its value: two starts of one configuration have the same."""
        lines = (f"{key}={format_value(one.value)}\n" for key, one in sorted(self.values.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def plain_texts(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Configs by key, durations and sizes as Kafka's plain numbers."""
        return plain_texts(configs)

    def topic_config(
        self, overrides: Mapping[str, str], dynamic: Mapping[str, str] = _NOTHING
    ) -> LogConfig:
        """A topic's configuration over this daemon's defaults; InvalidTopicConfig.

        dynamic: broker keys set at run time, which have precedence over the file.
        """
        return parse_topic_config(overrides, self.topic_defaults(dynamic))

    def topic_defaults(self, dynamic: Mapping[str, str]) -> LogConfig:
        """The configuration of a topic without overrides; InvalidRequest for a wrong dynamic."""
        defaults = self.broker.topic_defaults
        return with_dynamic(defaults, parse_dynamic(dynamic)) if dynamic else defaults

    def cleaner_config(self, dynamic: Mapping[str, str] = _NOTHING) -> LogCleanerConfig:
        """The configuration of the log cleaner; InvalidRequest for a wrong dynamic."""
        return broker_with_dynamic(self.broker, parse_dynamic(dynamic)).cleaner

    def log_dir_config(self, dynamic: Mapping[str, str] = _NOTHING) -> LogDirConfig:
        """What of the log directories changes; InvalidRequest for a wrong dynamic."""
        return broker_with_dynamic(self.broker, parse_dynamic(dynamic)).log_dir_config

    def describe_topic_config(
        self, overrides: Mapping[str, str], dynamic: Mapping[str, str] = _NOTHING
    ) -> list[ConfigEntry]:
        """Every topic key with value, source and synonyms, by name; InvalidTopicConfig."""
        self.topic_config(overrides, dynamic)
        return describe_topic_config(overrides, _given(self.values), parse_dynamic(dynamic))

    def describe_broker_config(self, dynamic: Mapping[str, str] = _NOTHING) -> list[ConfigEntry]:
        """Every broker key with value, source and synonyms, by name."""
        values = {key: one.value for key, one in self.values.items()}
        described = describe_broker_config(values, _given(self.values), parse_dynamic(dynamic))
        hidden = {key for key, one in self.values.items() if one.is_hidden}
        return [without_values(entry, hidden) for entry in described] if hidden else described

    @property
    def has_default_log_dir(self) -> bool:
        """Whether nobody said where data goes."""
        chosen = (self.values["log.dirs"], self.values["log.dir"])
        return all(one.source is Source.DEFAULT for one in chosen)

    def overlooked_log_dirs(self, exists: Callable[[str], bool]) -> list[str]:
        """Directories with data that are, or were, the default of others, when none is chosen."""
        if not self.has_default_log_dir:
            return []
        others = [path for path in _OTHER_DEFAULTS if path not in self.broker.log_dirs]
        return [path for path in others if exists(f"{path}/meta.properties")]

    @property
    def effective(self) -> list[str]:
        """The configured keys: ``key=value (source)``; all others have their defaults."""
        return [
            f"{key}={one.shown_text} ({' '.join(filter(None, (one.source.value, one.origin)))})"
            for key, one in sorted(self.values.items())
            if one.source is not Source.DEFAULT
        ]


def no_file(path: str) -> str:
    """For those who load settings without variables that name files; InvalidConfig."""
    raise InvalidConfig(f"Cannot read {path}: no files are read here")


def load_settings(
    file_data: bytes | None,
    environment: Mapping[str, str],
    overrides: Mapping[str, str],
    read_file: Callable[[str], str] = no_file,
    *,
    files: Mapping[str, bytes] = _NO_FILES,
    allow_unknown: bool = False,
) -> Settings:
    """Resolve, parse and check everything; InvalidConfig names key, value and valid range.

    It names the place of each wrong value, of all of them at once.

    files are properties files by their names, weakest first, Latin-1 with escapes as Java reads
    them; file_data is one without a name, which has precedence. read_file reads what a variable
    ``..._FILE`` names. allow_unknown: a key that looks mistyped is a warning, no error.
    """
    variables = settings_of_environment(environment, read_file)
    named = {**files, "": file_data} if file_data else files
    faults: list[InvalidConfig] = []
    texts, notices = _merge(named, variables, overrides, faults, allow_unknown=allow_unknown)
    values: dict[str, ResolvedValue] = {}
    for key, setting in BROKER_LEVEL.items():
        values[key] = ResolvedValue(setting, setting.default, Source.DEFAULT)
        if key not in texts:
            continue
        one = texts[key]
        try:
            value = setting.parse(one.text)
        except ValueError as error:
            faults.append(_placed(_refused(setting, one.shown_text, str(error)), one.place))
            continue
        values[key] = ResolvedValue(
            setting, value, one.source, one.origin, one.is_hidden, one.place
        )
        if not setting.effective:
            notices.append(Notice("info", f"{key} is set. {NO_EFFECT}"))
    if values["log.dirs"].value is None and values["log.dir"].value is None:
        values["log.dir"] = replace(values["log.dir"], value=default_log_dir(environment))
    server = ServerConfig(**_fields_of(ServerConfig, values))
    faults += _faults_together(values, server, {str(one.details["key"]) for one in faults})
    if faults:
        raise _all_at_once(faults)
    notices += _check_exposure(server)
    return Settings(values, _broker_config(values), server, tuple(notices))


def _faults_together(
    values: Mapping[str, ResolvedValue], server: ServerConfig, wrong: Collection[str]
) -> Iterator[InvalidConfig]:
    """Of rules over several keys, but those of a key that is wrong by itself: its default is in."""
    of_values = (_check_retention, _check_patterns, _check_hosts, _check_log_dirs, _broker_config)
    of_server = (_check_ports, _check_auth, _check_jwt, _check_tls, _check_exposure)
    checks: list[Callable[[], object]] = [partial(check, values) for check in of_values]
    checks += [partial(check, server) for check in of_server]
    for check in checks:
        try:
            check()
        except InvalidConfig as fault:
            if not any(key in fault.message for key in wrong):
                key = str(fault.details.get("key"))
                yield _placed(fault, values[key].place if key in values else "")


def _placed(fault: InvalidConfig, place: str) -> InvalidConfig:
    """The fault with the place that is to be edited."""
    return InvalidConfig(
        f"{fault.message} (from {place})" if place else fault.message, **fault.details
    )


def _all_at_once(faults: list[InvalidConfig]) -> InvalidConfig:
    """One error for all of them, a line each."""
    if len(faults) == 1:
        return faults[0]
    lines = "".join(f"\n  {fault.message}" for fault in faults)
    return InvalidConfig(f"{len(faults)} settings are wrong:{lines}", **faults[0].details)


def _check_ports(server: ServerConfig) -> None:
    """Each listener has its own port; the system's "address in use" would not name the other."""
    listeners = (
        ("http.port", server.http_host, server.http_port),
        ("admin.port", server.admin_host, server.admin_port),
        ("metrics.port", server.metrics_host, server.metrics_port),
    )
    for (other, other_host, other_port), (key, host, port) in combinations(listeners, 2):
        # 0 and unset are no port that anything else could have
        if port and port == other_port and overlap(host, other_host):
            raise InvalidConfig(
                f"{key} and {other} are the same port at the same address: give {key} another one, "
                "or leave it out",
                key=key,
            )


def _check_auth(server: ServerConfig) -> None:
    """Ways to authenticate that fit together, each with what it reads; InvalidConfig."""
    auth = server.http_auth
    if auth == () or (auth is not None and "none" in auth and len(auth) > 1):
        message = "http.auth is none alone, or one or more of the ways to authenticate"
        raise InvalidConfig(message, key="http.auth")
    if auth is not None and set(auth) & {"basic", "bearer"} and server.http_auth_file is None:
        message = f"http.auth={','.join(auth)} needs a file of credentials: set http.auth.file"
        raise InvalidConfig(message, key="http.auth.file")
    if server.http_auth_file is not None and not set(auth or ()) & {"basic", "bearer"}:
        message = "http.auth.file is read for basic and bearer: name them in http.auth"
        raise InvalidConfig(message, key="http.auth.file")


def _check_exposure(server: ServerConfig) -> list[Notice]:
    """Refuse to serve other machines without authentication by oversight; InvalidConfig."""
    auth = server.http_auth
    exposed = server.exposed
    if exposed is None:
        return []
    key, place = exposed[0], "=".join(exposed)
    if auth is None:
        raise InvalidConfig(
            f"{place} can be reached from other machines and there is no "
            "authentication: set http.auth to how clients prove who they are, or http.auth=none to "
            f"serve it nevertheless, or {key}=127.0.0.1",
            key=key,
        )
    if auth == ("none",):
        message = f"{place} serves other machines without authentication"
        return [Notice("warning", message)]
    if server.http_tls_cert_file is None:
        message = f"{place} takes credentials without TLS (http.tls.cert.file)"
        return [Notice("warning", message)]
    return []


def _check_jwt(server: ServerConfig) -> None:
    """jwt needs keys, issuer and audience, else any token would be accepted; InvalidConfig."""
    needed = {
        "http.jwt.jwks.file": server.http_jwt_jwks_file,
        "http.jwt.issuer": server.http_jwt_issuer,
        "http.jwt.audience": server.http_jwt_audience,
        "http.jwt.principal.claim": server.http_jwt_principal_claim,
        "http.jwt.algorithms": server.http_jwt_algorithms,
    }
    if "jwt" in (server.http_auth or ()):
        missing = [key for key, value in needed.items() if not value]
        if missing:
            message = f"jwt in http.auth needs {missing[0]}"
            raise InvalidConfig(message, key=missing[0])
    elif server.http_jwt_jwks_file is not None:
        message = "http.jwt.jwks.file is read for jwt: name it in http.auth"
        raise InvalidConfig(message, key="http.jwt.jwks.file")


def _check_tls(server: ServerConfig) -> None:
    """Keys that need each other are set together; InvalidConfig."""
    if (server.http_tls_cert_file is None) is not (server.http_tls_key_file is None):
        message = "http.tls.cert.file and http.tls.key.file are set both or neither"
        raise InvalidConfig(message, key="http.tls.key.file")
    wants = "mtls" in (server.http_auth or ())
    if wants is not (server.http_tls_client_ca_file is not None):
        message = "mtls in http.auth and http.tls.client.ca.file are set both or neither"
        raise InvalidConfig(message, key="http.tls.client.ca.file")
    if wants and server.http_tls_cert_file is None:
        message = "mtls in http.auth needs TLS: set http.tls.cert.file and http.tls.key.file"
        raise InvalidConfig(message, key="http.tls.cert.file")
    if wants and not server.http_mtls_principal:
        raise InvalidConfig("http.mtls.principal names no place", key="http.mtls.principal")


def _merge(
    files: Mapping[str, bytes],
    environment: Mapping[str, _Given],
    overrides: Mapping[str, str],
    faults: list[InvalidConfig],
    *,
    allow_unknown: bool,
) -> tuple[dict[str, _Given], list[Notice]]:
    """The text of each key by precedence; notices about keys that nothing reads, or faults."""
    of_files = [_of_file(name, data) for name, data in files.items()]
    of_overrides = {key: _Given(text, Source.OVERRIDE) for key, text in overrides.items()}
    texts: dict[str, _Given] = {}
    for layer in (*of_files, environment, of_overrides):
        texts |= _with_listener(layer)
    if not allow_unknown:
        _check_files(of_files, faults)
    notices = _notices_of_unread(texts, faults, allow_unknown=allow_unknown)
    taken = [one.origin for one in texts.values() if one.origin.startswith(CFG_PREFIX)]
    if taken:
        message = f"{CFG_PREFIX} variables are accepted; KAFKALOG_ is their name here: "
        notices.append(Notice("info", message + ", ".join(sorted(set(taken)))))
    return texts, notices


def _check_files(layers: Sequence[Mapping[str, _Given]], faults: list[InvalidConfig]) -> None:
    """A file of which nothing is read is another one than the operator meant.

    One key with a dot may be mistyped, and is judged by itself; a word begins a line of prose.
    """
    for layer in layers:
        is_judged = len(layer) > 1 or any("." not in key for key in layer)
        if is_judged and not layer.keys() & BROKER_LEVEL.keys():
            from kafkalog.settings.kafka_keys import KAFKA_KEYS

            if not layer.keys() & (KAFKA_KEYS | TOPIC_LEVEL.keys()):
                key, one = next(iter(layer.items()))
                message = f"{one.origin} holds no key of kafkalog or Kafka: is it the right file?"
                faults.append(InvalidConfig(message, key=key))


def _of_file(name: str, data: bytes) -> dict[str, _Given]:
    """The keys of one file; InvalidConfig when it is malformed."""
    try:
        pairs, fault = decode_numbered_properties(data), binary_fault(data)
    except FormatError as error:
        pairs, fault = {}, str(error)
    if fault is not None:
        message = f"the configuration file {name}".rstrip()
        raise InvalidConfig(f"{message} is malformed: {fault}")
    return {key: _Given(text, Source.FILE, name, line=line) for key, (text, line) in pairs.items()}


def _with_listener(layer: Mapping[str, _Given]) -> Mapping[str, _Given]:
    """One source with the host and port of its ``listeners=http://HOST:PORT``.

    What it says itself of http.host and http.port has precedence, as what later sources say.
    """
    one = layer.get(_LISTENERS)
    try:
        listener = None if one is None else http_listener(one.text)
    except ValueError:
        return layer  # see _check_listener
    if one is None or listener is None:
        return layer
    host, port = replace(one, text=listener.host), replace(one, text=listener.port)
    return {"http.host": host, "http.port": port, **layer}


def _check_listener(
    texts: Mapping[str, _Given], notices: list[Notice], faults: list[InvalidConfig]
) -> None:
    """An address for HTTP has to have the scheme that its port then speaks.

    Without one nothing reads ``listeners``: what to write instead is a notice, of a flag a fault.
    """
    one, certificate = texts[_LISTENERS], texts.get("http.tls.cert.file")
    has_tls = certificate is not None and bool(certificate.text.strip())
    try:
        listener = http_listener(one.text)
        if listener is None:
            _refer_to_http(one, notices, faults)
            return
        if listener.is_tls and not has_tls:
            raise ValueError("https needs http.tls.cert.file and http.tls.key.file")
        if has_tls and not listener.is_tls:
            raise ValueError("with http.tls.cert.file the port serves https")
    except ValueError as error:
        message = f"Invalid value {one.shown_text} for configuration {_LISTENERS}: {error}"
        faults.append(_placed(InvalidConfig(message, key=_LISTENERS), one.place))
        return
    if listener.others:
        others = ", ".join(listener.others)
        notices.append(Notice("info", f"{_LISTENERS}: {others} opens no port: only HTTP is spoken"))


def _refer_to_http(one: _Given, notices: list[Notice], faults: list[InvalidConfig]) -> None:
    """See ``_check_listener``."""
    remedy = f"set http.host and http.port, or {_LISTENERS}=http://HOST:PORT"
    if one.source is Source.OVERRIDE:
        message = f"Nothing reads {_LISTENERS}={one.shown_text}: only HTTP is spoken; {remedy}"
        faults.append(_placed(InvalidConfig(message, key=_LISTENERS), one.place))
    else:
        message = f"{_LISTENERS}: {one.shown_text} opens no port: only HTTP is spoken; {remedy}"
        notices.append(Notice("info", message))


def _notices_of_unread(
    texts: Mapping[str, _Given], faults: list[InvalidConfig], *, allow_unknown: bool
) -> list[Notice]:
    """About keys that nothing reads; a fault of those that somebody means to be read."""
    unread = sorted(texts.keys() - BROKER_LEVEL.keys())
    if not unread:
        return []  # without the list of Kafka's keys
    from kafkalog.settings.kafka_keys import KAFKA_KEYS

    notices, strangers = list[Notice](), list[str]()
    if _LISTENERS in unread:
        _check_listener(texts, notices, faults)
        unread.remove(_LISTENERS)
    for key in unread:
        one, is_judged = texts[key], not (allow_unknown or key in KAFKA_KEYS)
        meant = mistyped(key, BROKER_LEVEL) if is_judged and key not in TOPIC_LEVEL else None
        is_of_topics = key in TOPIC_LEVEL and TOPIC_LEVEL[key].effective
        is_wrong = meant is not None or (is_judged and is_of_topics)
        is_strange = not is_of_topics and (
            key.startswith(NOT_APPLICABLE_PREFIXES)
            or (key in KAFKA_KEYS and key not in TOPIC_LEVEL and key not in _OTHERWISE_NAMED)
        )
        if is_strange and not is_wrong and one.source is not Source.OVERRIDE:
            strangers.append(key)
            continue
        hint = "; it does not apply to kafkalog" if is_strange else _hint_of(key)
        if is_wrong and one.source is not Source.OVERRIDE:
            hint = f"; did you mean {meant}?" if meant is not None else f"{hint}."
            hint += " --allow-unknown makes it a warning"
        if is_wrong or one.source is Source.OVERRIDE:  # it would be taken for done
            faults.append(_placed(InvalidConfig(f"Nothing reads {key}{hint}", key=key), one.place))
        else:
            named = f" (from {one.origin})" if one.origin else ""
            notices.append(Notice("warning", f"unknown configuration key {key}{named}{hint}"))
    if strangers:
        message = "Kafka keys that do not apply to kafkalog are ignored: " + ", ".join(strangers)
        notices.append(Notice("info", message))
    return notices


def _hint_of(key: str) -> str:
    """What may have been meant by a key that nothing reads."""
    if key in TOPIC_LEVEL:
        synonyms = [synonym.key for synonym in TOPIC_LEVEL[key].synonyms]
        if synonyms:
            return f"; it is a topic key, its default is set with {synonyms[0]}"
        return "; it is a topic key: kafkalog topics alter sets it"
    if key in _OTHERWISE_NAMED:
        return f"; here it is {_OTHERWISE_NAMED[key]}"
    return did_you_mean(key, BROKER_LEVEL)


def _refused(setting: Setting, text: str | None, reason: str) -> InvalidConfig:
    return setting.refusal(InvalidConfig, text, reason)


def _check_retention(values: Mapping[str, ResolvedValue]) -> None:
    """A rule that a range cannot express, as those that follow."""
    for synonym in TOPIC_LEVEL["retention.ms"].synonyms:
        resolved = values[synonym.key]
        if resolved.value == 0:
            raise _refused(resolved.setting, "0", "must not be 0")


def _check_patterns(values: Mapping[str, ResolvedValue]) -> None:
    for key in ("metrics.topic.include", "metrics.topic.exclude"):
        resolved = values[key]
        try:
            re.compile(str(resolved.value or ""))
        except re.error as error:
            raise _refused(
                resolved.setting, resolved.shown_text, f"is no regular expression: {error}"
            ) from error


def _check_hosts(values: Mapping[str, ResolvedValue]) -> None:
    hosts = values["http.allowed.hosts"]
    assert isinstance(hosts.value, tuple)
    for entry in hosts.value:
        if not _HOST_ENTRY.fullmatch(entry):
            reason = f"{entry!r} is no name (without port), .domain, *.domain or *"
            raise _refused(hosts.setting, hosts.shown_text, reason)
    proxies = values["http.trusted.proxies"]
    assert isinstance(proxies.value, tuple)
    for proxy in proxies.value:
        try:
            ipaddress.ip_network(proxy, strict=False)
        except ValueError as error:
            raise _refused(proxies.setting, proxies.shown_text, str(error)) from error


def _check_log_dirs(values: Mapping[str, ResolvedValue]) -> None:
    directories = _log_dirs(values)
    chosen = values["log.dirs"] if values["log.dirs"].value is not None else values["log.dir"]
    if not directories or not all(directories) or len(set(directories)) != len(directories):
        reason = "must name at least one directory, none empty and none twice"
        raise _refused(chosen.setting, chosen.shown_text, reason)
    if directories[0].startswith("[") and directories[-1].endswith("]"):
        reason = "is no YAML list: give the directories with commas between them, as /a,/b"
        raise _refused(chosen.setting, chosen.shown_text, reason)
    cordoned = values["cordoned.log.dirs"]
    assert isinstance(cordoned.value, tuple)
    fault = cordoned_fault(directories, cordoned.value)
    if fault is not None:
        raise _refused(cordoned.setting, cordoned.shown_text, fault)


# Kafka's, which kafkalog had as well, a service's, and that of deploy/systemd.
_OTHER_DEFAULTS = ("/tmp/kafka-logs", "/var/lib/kafkalog", "/var/lib/kafkalog/data")


def default_log_dir(environment: Mapping[str, str]) -> str:
    """systemd's directory of the service, else the user's for data (XDG), else the system's.

    Differs from Kafka, whose /tmp/kafka-logs many systems empty at a boot.
    """
    state = environment.get("STATE_DIRECTORY", "").split(":")[0]
    if state:
        return state
    data, home = environment.get("XDG_DATA_HOME", ""), environment.get("HOME", "")
    if not data.startswith("/") and home.startswith("/") and home.strip("/"):
        data = f"{home}/.local/share"
    is_usable = data.startswith("/") and "," not in data  # of which a list is made
    return f"{data}/kafkalog" if is_usable else "/var/lib/kafkalog"


def _log_dirs(values: Mapping[str, ResolvedValue]) -> tuple[str, ...]:
    """log.dirs, else log.dir; both are comma lists, as in Kafka. An empty one is no missing one."""
    several = values["log.dirs"].value
    if isinstance(several, tuple):
        return several
    return tuple(part.strip() for part in str(values["log.dir"].value).split(","))


def _node_id(values: Mapping[str, ResolvedValue]) -> int | None:
    """node.id, else broker.id, its name before KRaft; InvalidConfig when both say different ids."""
    node, former = values["node.id"].value, values["broker.id"].value
    if former in (None, _NO_BROKER_ID):
        former = node
    if node is not None and node != former:
        raise InvalidConfig(
            f"broker.id={former} and node.id={node} are two ids of one broker: leave out broker.id",
            key="broker.id",
        )
    assert former is None or isinstance(former, int)
    return former


def _given(values: Mapping[str, ResolvedValue]) -> dict[str, Value]:
    """The values that are configured."""
    return {key: one.value for key, one in values.items() if one.source is not Source.DEFAULT}


def _broker_config(values: Mapping[str, ResolvedValue]) -> BrokerConfig:
    given = _given(values)
    try:
        defaults = topic_defaults(given)
    except InvalidTopicConfig as error:
        raise InvalidConfig(error.message, **error.details) from error
    for setting in TOPIC_LEVEL.values():
        value = topic_default(setting, given)
        if not setting.valid.accepts(value):
            raise _refused(setting, format_value(value), "is the result of its broker keys")
    chosen = _fields_of(BrokerConfig, values) | {
        "log_dirs": _log_dirs(values),
        "node_id": _node_id(values),
        "topic_defaults": defaults,
    }
    broker = BrokerConfig(**chosen)
    fault = cleaner_fault(broker.cleaner)
    if fault is not None:
        resolved = values[fault[0]]
        raise _refused(resolved.setting, resolved.shown_text, fault[1])
    return broker


def _fields_of(
    config: type[BrokerConfig | ServerConfig], values: Mapping[str, ResolvedValue]
) -> dict[str, Any]:
    """Values of the keys that config has a field for; both configurations may hold a key."""
    wanted = {field.name for field in fields(config)}
    return {
        one.setting.field: one.value
        for one in values.values()
        if one.setting.scope in (Scope.BROKER, Scope.SERVER) and one.setting.field in wanted
    }
