"""Goal: every Kafka key is read by Kafka's rules, with its source, its range and its nearest name,
and configs of topics and at run time are validated and described alike.
Method: tables of keys, good and bad values, files and variables.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.errors import InvalidConfig, InvalidRequest, InvalidTopicConfig
from kafkalog.log.log_config import LogConfig
from kafkalog.observe.metrics_options import PartitionLevel
from kafkalog.settings import ServerConfig, Settings, Source, load_settings
from kafkalog.settings.kafka_keys import KAFKA_KEYS
from kafkalog.settings.setting import Scope, format_value
from kafkalog.settings.tables import BROKER_LEVEL, NO_EFFECT, TOPIC_LEVEL
from tools.settings_page import configuration_page

ROOT = Path(__file__).resolve().parents[2]


def load(text: str = "", env: dict[str, str] | None = None, **overrides: str) -> Settings:
    named = {key.replace("_", "."): value for key, value in overrides.items()}
    return load_settings(text.encode(), env or {}, named)


def messages(settings: Settings) -> str:
    return "\n".join(notice.message for notice in settings.notices)


def test_without_anything_every_default_is_the_dataclasses_own() -> None:
    settings = load_settings(None, {}, {})
    assert settings.broker == BrokerConfig()
    assert settings.server == ServerConfig()
    assert settings.broker.topic_defaults == LogConfig()
    assert not settings.notices
    assert {one.source for one in settings.values.values()} == {Source.DEFAULT}


def test_every_field_has_a_key_and_every_key_a_field_or_a_sentence() -> None:
    declared = {one.field for one in BROKER_LEVEL.values() if one.field}
    held = {field.name for config in (BrokerConfig, ServerConfig) for field in fields(config)}
    assert held - {"topic_defaults"} <= declared
    topic_fields = {one.field for one in TOPIC_LEVEL.values() if one.field}
    assert topic_fields == {field.name for field in fields(LogConfig)}
    for setting in (*BROKER_LEVEL.values(), *TOPIC_LEVEL.values()):
        assert setting.doc
        assert setting.effective or NO_EFFECT in setting.doc
        assert setting.valid.accepts(setting.default), setting.key
        if setting.effective and setting.scope in (Scope.BROKER, Scope.SERVER):
            assert setting.field in held or setting.key == "log.dirs", setting.key


def test_every_default_survives_its_own_text() -> None:
    for setting in (*BROKER_LEVEL.values(), *TOPIC_LEVEL.values()):
        text = format_value(setting.default)
        if text is not None:
            assert setting.parse(text) == setting.default, setting.key


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("log.retention.ms", "7d", 604_800_000),
        ("log.retention.ms", "1.5h", 5_400_000),
        ("log.retention.hours", "1w", 168),
        ("log.retention.minutes", "90min", 90),
        ("log.segment.bytes", "1GiB", 1 << 30),
        ("log.segment.bytes", " 64 mib ", 64 << 20),
        ("log.cleaner.io.max.bytes.per.second", "10MiB/s", 10 << 20),
        ("http.max.bytes.per.second", "1Mi", 1 << 20),
    ],
)
def test_numbers_of_time_and_bytes_may_have_a_unit(key: str, text: str, value: int) -> None:
    setting = BROKER_LEVEL[key]
    assert setting.parse(text) == value
    assert setting.plain(text) == str(value)
    assert setting.plain(str(value)) == str(value)


@pytest.mark.parametrize(
    ("key", "text", "example"),
    [
        ("log.retention.hours", "30m", "7d, 12h"),  # no whole number of hours
        ("log.retention.ms", "7D", "7d, 12h"),
        ("log.retention.ms", "-7d", "7d, 12h"),
        ("log.retention.ms", "1GiB", "7d, 12h"),
        ("log.segment.bytes", "1GB", "1GiB, 64MiB"),  # 1000 or 1024?
        ("log.segment.bytes", "4GiB", "1GiB, 64MiB"),  # above its type
        ("num.partitions", "7d", ""),
    ],
)
def test_what_has_no_such_unit(key: str, text: str, example: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        load("", {}, **{key.replace(".", "_"): text})
    assert f"Invalid value {text} for configuration {key}: must be a whole" in refused.value.message
    assert (f", or as {example}" in refused.value.message) is bool(example)


def test_every_synonym_is_a_declared_broker_key() -> None:
    for setting in TOPIC_LEVEL.values():
        assert all(synonym.key in BROKER_LEVEL for synonym in setting.synonyms)


def test_override_beats_environment_beats_file_beats_default() -> None:
    """M13: broker configuration with the source of each value."""
    text, env = "http.port=1\n", {"KAFKALOG_HTTP_PORT": "2"}
    for settings, port, source in (
        (load(text, env, http_port="3"), 3, Source.OVERRIDE),
        (load(text, env), 2, Source.ENVIRONMENT),
        (load(text), 1, Source.FILE),
        (load(), 8082, Source.DEFAULT),
    ):
        assert settings.server.http_port == port
        assert settings.values["http.port"].source is source


def test_milliseconds_beat_minutes_beat_hours_wherever_they_come_from() -> None:
    """M08: log.retention.ms over .minutes over .hours, 168 h by default."""
    env = {"KAFKA_LOG_RETENTION_HOURS": "1"}
    assert load("", env).broker.topic_defaults.retention_ms == 3_600_000
    assert load("log.retention.minutes=2", env).broker.topic_defaults.retention_ms == 120_000
    both = "log.retention.minutes=2\nlog.retention.ms=7"
    assert load(both, env).broker.topic_defaults.retention_ms == 7
    assert load("log.retention.hours=-1").broker.topic_defaults.retention_ms == -1
    assert load().broker.topic_defaults.retention_ms == 168 * 3_600_000


def test_roll_and_flush_synonyms() -> None:
    """M06: log.roll.ms over log.roll.hours, jitter likewise."""
    defaults = load("log.roll.hours=2\nlog.roll.jitter.hours=1").broker.topic_defaults
    assert (defaults.segment_ms, defaults.segment_jitter_ms) == (7_200_000, 3_600_000)
    assert load("log.roll.hours=2\nlog.roll.ms=5").broker.topic_defaults.segment_ms == 5
    assert load("log.flush.scheduler.interval.ms=9").broker.topic_defaults.flush_ms == 9


def test_log_dirs_wins_over_log_dir_and_is_trimmed() -> None:
    assert load("log.dir=/a").broker.log_dirs == ("/a",)
    assert load("log.dir=/a\nlog.dirs=/b , /c").broker.log_dirs == ("/b", "/c")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("http.port", "65536"),
        ("http.port", "8082x"),
        ("http.port", "1_0"),
        ("num.partitions", "0"),
        ("num.partitions", "2147483648"),
        ("auto.create.topics.enable", "yes"),
        ("log.segment.bytes", "1048575"),
        ("log.retention.ms", "0"),
        ("log.cleaner.min.cleanable.ratio", "NaN"),
        ("log.cleaner.min.cleanable.ratio", "1.1"),
        ("log.cleaner.dedupe.buffer.size", "1048576"),
        ("log.cleanup.policy", "Compact"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("log.dirs", ""),
        ("log.dirs", "/a,/a"),
        ("log.dirs", "/a,,/b"),
        ("cordoned.log.dirs", "/elsewhere"),
        ("cordoned.log.dirs", "*,/var/lib/kafkalog"),
        ("http.produce.acks", "2"),
        ("http.host", "0.0.0.0"),
        ("queued.max.request.bytes", "-1"),
    ],
)
def test_a_wrong_value_names_key_and_value(key: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load_settings(None, {}, {key: value})
    assert key in caught.value.message
    assert value in caught.value.message


def test_cordoned_directories_are_some_of_the_log_directories() -> None:
    """As Kafka 4.3 checks them; a slash behind names the same directory."""
    both = "log.dirs=/a,/b\ncordoned.log.dirs="
    assert load(both).broker.cordoned_log_dirs == ()
    assert load(both + "/b").broker.cordoned_log_dirs == ("/b",)
    assert load(both + "*").broker.cordoned_log_dirs == ("*",)
    assert load("log.dirs=/a/,/b\ncordoned.log.dirs=/a").broker.cordoned_log_dirs == ("/a",)


def test_the_message_names_the_valid_range() -> None:
    with pytest.raises(InvalidConfig, match=r"valid: 0 to 65535"):
        load(http_port="-1")
    with pytest.raises(InvalidConfig, match=r"valid: any number from 1, or -1\)"):
        load("log.retention.ms=0\n")


def test_a_file_of_one_line_of_prose_is_the_wrong_one() -> None:
    """The doctor found no problem in it."""
    for text in ("hello world\n", "hello\n", "hello: world\n"):
        with pytest.raises(InvalidConfig, match="holds no key of kafkalog or Kafka"):
            load(text)
    assert "unknown configuration key my.key" in messages(load("my.key=1\n"))


def test_a_file_without_any_known_key_is_the_wrong_one() -> None:
    with pytest.raises(InvalidConfig, match="holds no key of kafkalog or Kafka"):
        load("root=x\ndaemon=y\n")
    assert load("root=x\ndaemon=y\nnum.partitions=3\n").broker.num_partitions == 3
    assert load("root=x\ndaemon=y\nprocess.roles=broker\n")


def test_values_are_read_as_java_reads_them() -> None:
    assert load("auto.create.topics.enable= FALSE ").broker.auto_create_topics_enable is False
    assert load("num.partitions=+3").broker.num_partitions == 3
    ratio = "log.cleaner.min.cleanable.ratio=2.5e-1"
    assert load(ratio).broker.topic_defaults.min_cleanable_dirty_ratio == 0.25


def test_an_unknown_key_is_a_warning_with_the_nearest_name() -> None:
    text = messages(load("log.segment.size=5\nremote.storage.enable=true"))
    assert "unknown configuration key log.segment.size; did you mean log.segment.bytes?" in text
    assert text.endswith("do not apply to kafkalog are ignored: remote.storage.enable")


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("file.delete.delay.ms", ", its default is set with log.segment.delete.delay.ms"),
        ("retention.ms", ", its default is set with log.retention.ms"),
        ("internal.segment.bytes", ": kafkalog topics alter sets it"),
        ("quota.bytes", ": kafkalog topics alter sets it"),
    ],
)
def test_a_topics_key_among_the_brokers_stops_the_start(key: str, remedy: str) -> None:
    """Its operator takes it for done; a warning was all that said otherwise."""
    said = f"Nothing reads {key}; it is a topic key{remedy}. --allow-unknown makes it a warning"
    with pytest.raises(InvalidConfig) as raised:
        load_settings(None, {}, {}, files={"s": f"{key}=5000\n".encode()})
    assert raised.value.message == f"{said} (from s:1)"
    allowed = load_settings(f"{key}=5000\n".encode(), {}, {}, allow_unknown=True)
    (notice,) = allowed.notices
    assert notice.message == f"unknown configuration key {key}; it is a topic key{remedy}"


@pytest.mark.parametrize(
    ("text", "node_id"),
    [
        ("broker.id=7", 7),
        ("broker.id=7\nnode.id=7", 7),
        ("broker.id=-1\nnode.id=3", 3),
        ("broker.id=-1", None),
        ("node.id=0", 0),
    ],
)
def test_the_former_name_of_the_node_id(text: str, node_id: int | None) -> None:
    settings = load(text)
    assert (settings.broker.node_id, settings.notices) == (node_id, ())


def test_two_ids_of_one_broker_are_refused() -> None:
    said = "broker.id=7 and node.id=8 are two ids of one broker: leave out broker.id"
    with pytest.raises(InvalidConfig) as raised:
        load_settings(b"broker.id=7\n", {}, {"node.id": "8"})
    assert raised.value.message == f"{said} (from line 1)"


def test_kafka_keys_about_other_things_are_listed_in_one_line() -> None:
    settings = load("zookeeper.connect=z\nssl.keystore.location=x\nbroker.rack=r")
    (notice,) = settings.notices
    assert notice.level == "info"
    assert notice.message.endswith("broker.rack, ssl.keystore.location, zookeeper.connect")


def test_a_key_without_effect_says_so() -> None:
    key = "log.dir.failure.timeout.ms"
    assert f"{key} is set. {NO_EFFECT}" in messages(load(f"{key}=2"))


def test_other_addresses_need_a_word_and_get_a_warning() -> None:
    settings = load("http.host=0.0.0.0\nhttp.auth=none")
    assert settings.notices[0].level == "warning"
    assert load("http.host=::1").server.exposed is None
    with pytest.raises(InvalidConfig, match=r"http.auth=none to serve it nevertheless"):
        load("http.host=0.0.0.0")
    known = load("http.host=0.0.0.0\nhttp.auth=bearer,basic\nhttp.auth.file=f")
    assert known.server.http_auth == ("bearer", "basic")
    (notice,) = known.notices
    assert "without TLS" in notice.message
    encrypted = load(
        "http.host=0.0.0.0\nhttp.auth=bearer\nhttp.auth.file=f\n"
        "http.tls.cert.file=c\nhttp.tls.key.file=k"
    )
    assert not encrypted.notices


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("http.auth=none,basic\nhttp.auth.file=f", "none alone"),
        ("http.auth=", "none alone"),
        ("http.auth=basic", "needs a file of credentials: set http.auth.file"),
        ("http.auth.file=f", "name them in http.auth"),
        ("admin.port=1\nadmin.host=10.0.0.1", "admin.host=10.0.0.1 can be reached"),
        ("metrics.port=1\nmetrics.host=*", "or metrics.host=127.0.0.1"),
        ("http.auth=kerberos", "a list of: none, basic, bearer, jwt"),
        ("http.auth=jwt", "jwt in http.auth needs http.jwt.jwks.file"),
        ("http.auth=jwt\nhttp.jwt.jwks.file=f", "needs http.jwt.issuer"),
        ("http.auth=jwt\nhttp.jwt.jwks.file=f\nhttp.jwt.issuer=i", "needs http.jwt.audience"),
        (
            "http.auth=jwt\nhttp.jwt.jwks.file=f\nhttp.jwt.issuer=i\nhttp.jwt.audience=a\n"
            "http.jwt.algorithms=",
            "needs http.jwt.algorithms",
        ),
        (
            "http.auth=jwt\nhttp.jwt.jwks.file=f\nhttp.jwt.issuer=i\nhttp.jwt.audience=a\n"
            "http.jwt.algorithms=HS256",
            "a list of: RS256",
        ),
        ("http.jwt.jwks.file=f", "name it in http.auth"),
        ("http.tls.cert.file=c", "both or neither"),
        ("http.tls.cert.file=c\nhttp.tls.key.file=k\nhttp.auth=mtls", "both or neither"),
        ("http.tls.client.ca.file=c", "both or neither"),
        ("http.auth=mtls\nhttp.tls.client.ca.file=c", "needs TLS"),
        (
            "http.auth=mtls\nhttp.tls.client.ca.file=c\nhttp.tls.cert.file=c\n"
            "http.tls.key.file=k\nhttp.mtls.principal=",
            "names no place",
        ),
    ],
)
def test_authentication_that_cannot_be_is_refused(text: str, fault: str) -> None:
    """Nobody believes to be protected by a setting that does nothing."""
    with pytest.raises(InvalidConfig, match=fault):
        load(text)


def test_the_line_of_the_start_names_what_was_given_and_by_whom() -> None:
    settings = load_settings(
        None,
        {"KAFKA_HTTP_PORT": "2"},
        {"background.threads": "3"},
        files={
            "/etc/image.properties": b"http.auth=none\nnum.partitions=1\n",
            "/mnt/server.properties": b"http.port=1\nnum.partitions=2\nssl.key.password=canary\n",
        },
    )
    assert settings.effective == [
        "background.threads=3 (override)",
        "http.auth=none (file /etc/image.properties)",
        "http.port=2 (environment KAFKA_HTTP_PORT)",
        "num.partitions=2 (file /mnt/server.properties)",
    ]
    with pytest.raises(InvalidConfig, match=r"/etc/x\.properties is malformed"):
        load_settings(None, {}, {}, files={"/etc/x.properties": b"a=\\u00zz"})
    assert "canary" not in messages(settings)


def test_no_key_takes_a_secret() -> None:
    """Credentials lie in files that keys name, so that no display of keys can show one."""
    words = ("password", "secret", "token", "credential", "private")
    assert [key for key in BROKER_LEVEL if any(word in key for word in words)] == []


def test_the_shipped_file_is_the_defaults_with_data_beside_it() -> None:
    settings = load((ROOT / "config/server.properties").read_text(encoding="utf-8"))
    assert settings.broker.log_dirs == ("./data",)
    assert settings.server == ServerConfig()
    assert settings.broker.topic_defaults == LogConfig()
    assert not settings.notices


def test_the_reference_page_is_current() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    assert page == configuration_page(), "run make docs"


def test_what_metrics_leave_out_is_a_regular_expression() -> None:
    """M26: one that is none is found at the start, not at the first scrape."""
    options = load(
        "metrics.topic.exclude=__.*\nmetrics.partition.level=topic"
    ).server.metrics_options
    assert not options.shows_topic("__consumer_offsets")
    assert options.shows_topic("orders__")
    assert options.partition_level is PartitionLevel.TOPIC
    for key in ("metrics.topic.include", "metrics.topic.exclude"):
        with pytest.raises(InvalidConfig, match="no regular expression") as raised:
            load(f"{key}=a(")
        assert raised.value.details["key"] == key


def test_a_digest_is_of_every_value() -> None:
    """M26: kafkalog_config_info tells starts with another configuration apart."""
    assert load().digest == load("http.port=8082").digest
    assert load().digest != load("http.port=8083").digest


@pytest.mark.parametrize(
    ("text", "second", "first"),
    [
        ("admin.port=8082", "admin", "http"),
        ("metrics.port=8082", "metrics", "http"),
        ("http.port=1\nadmin.port=2\nmetrics.port=2", "metrics", "admin"),
        ("admin.port=8082\nadmin.host=localhost", "admin", "http"),
        ("admin.port=8082\nadmin.host=::1\nhttp.host=localhost", "admin", "http"),
        ("admin.port=8082\nadmin.host=0.0.0.0\nhttp.auth=none", "admin", "http"),
        ("admin.port=8082\nhttp.host=::\nadmin.host=::1\nhttp.auth=none", "admin", "http"),
        ("admin.port=8082\nhttp.host=::\nadmin.host=0:0::0\nhttp.auth=none", "admin", "http"),
        ("admin.port=8082\nhttp.host=name\nadmin.host=0.0.0.0\nhttp.auth=none", "admin", "http"),
        ("metrics.port=8082\nmetrics.host=::1\nhttp.host=\nhttp.auth=none", "metrics", "http"),
        ("metrics.port=8082\nhttp.host=\nhttp.auth=none", "metrics", "http"),
        (
            "admin.port=8082\nhttp.host=2001:db8::1\nadmin.host=2001:0db8:0::1\nhttp.auth=none",
            "admin",
            "http",
        ),
    ],
)
def test_one_port_for_two_listeners(text: str, second: str, first: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"{second}\.port.*{first}\.port") as refused:
        load(text)
    assert refused.value.details["key"] == f"{second}.port"


@pytest.mark.parametrize(
    "text",
    [
        "http.port=0\nadmin.port=0\nmetrics.port=0",
        "admin.port=8082\nhttp.host=10.0.0.1\nhttp.auth=none",
        "admin.port=8082\nadmin.host=127.0.0.2",
        "admin.port=8082\nadmin.host=::1",
        "admin.port=8082\nhttp.host=::\nhttp.auth=none",
        "admin.port=8082\nhttp.host=0.0.0.0\nadmin.host=::1\nhttp.auth=none",
        "admin.port=8082\nhttp.host=0.0.0.0\nadmin.host=::\nhttp.auth=none",
        "admin.port=8083\nmetrics.port=8084",
    ],
)
def test_ports_that_do_not_meet(text: str) -> None:
    assert load(text).server.admin_port is not None


def test_wrong_settings_are_named_with_their_places_and_all_at_once() -> None:
    """File and line, variable, flag; a rule over a key that is wrong by itself is not asked."""
    text = b"# ours\n\nnum.partitions=0\nlog.cleaner.dedupe.\\\n  buffer.size=7\nadmin.port=8082\n"
    with pytest.raises(InvalidConfig) as raised:
        load_settings(
            None,
            {"KAFKALOG_LOG_RETENTION_MS": "soon", "KAFKALOG_HTTP_ALLOWED_HOSTS": "a b"},
            {"http.port": "x"},
            files={"server.properties": text},
        )
    first, *lines = raised.value.message.splitlines()
    assert first == "5 settings are wrong:"
    assert [(line.split(" for ")[0], line.rpartition(" (from ")[2]) for line in lines] == [
        ("  Invalid value 0", "server.properties:3)"),
        ("  Invalid value soon", "KAFKALOG_LOG_RETENTION_MS)"),
        ("  Invalid value x", "--override)"),
        ("  Invalid value a b", "KAFKALOG_HTTP_ALLOWED_HOSTS)"),
        ("  Invalid value 7", "server.properties:4)"),
    ]
    with pytest.raises(InvalidConfig, match=r"the same port .*\(from s:1\)$"):
        load_settings(None, {}, {}, files={"s": b"admin.port=8082"})


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("advertised.listeners", "; it does not apply to kafkalog"),
        ("log.segment.size", "; did you mean log.segment.bytes?"),
        ("segment.bytes", "; it is a topic key, its default is set with log.segment.bytes"),
        ("my.key", ""),
    ],
)
def test_an_override_that_nothing_reads_is_refused(key: str, hint: str) -> None:
    """A file may hold the keys of other programs; what a flag names is asked for now."""
    with pytest.raises(InvalidConfig) as raised:
        load_settings(None, {}, {key: "9"})
    assert raised.value.message == f"Nothing reads {key}{hint} (from --override)"
    assert load_settings(f"{key}=9".encode(), {}, {}, allow_unknown=True).notices


@pytest.mark.parametrize("junk", [b"\x7fELF\x02", b"a=b\n\x1f\x8b\x08", b"h\0t\0t\0p\0"])
def test_a_file_that_is_no_text_is_refused(junk: bytes) -> None:
    with pytest.raises(InvalidConfig, match="configuration file s is malformed: it is no text"):
        load_settings(None, {}, {}, files={"s": junk})
    assert load("\f# \u00e4\n\thttp.port=1\r\n").server.http_port == 1


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"HOME": "/home/ada"}, "/home/ada/.local/share/kafkalog"),
        ({"HOME": "/home/ada", "XDG_DATA_HOME": "/d"}, "/d/kafkalog"),
        ({"HOME": "/home/ada", "XDG_DATA_HOME": "d"}, "/home/ada/.local/share/kafkalog"),
        ({"HOME": "/", "STATE_DIRECTORY": "/var/lib/k:/x"}, "/var/lib/k"),
        ({}, "/var/lib/kafkalog"),
        ({"HOME": "/"}, "/var/lib/kafkalog"),
        ({"HOME": "/home/a,b"}, "/var/lib/kafkalog"),
    ],
)
def test_where_data_goes_without_log_dirs(environment: dict[str, str], path: str) -> None:
    """Not to Kafka's /tmp/kafka-logs; the daemon logs which it is."""
    settings = load("", environment)
    assert settings.broker.log_dirs == (path,)
    assert settings.has_default_log_dir
    described = {entry.name: entry for entry in settings.describe_broker_config()}
    assert described["log.dir"].value == path
    assert not load("log.dir=/a", environment).has_default_log_dir


def test_data_in_another_default_directory_is_named() -> None:
    """Kafka's and kafkalog's former one, and a service's; unless log.dirs is set."""
    there = {"/tmp/kafka-logs/meta.properties", "/var/lib/kafkalog/meta.properties"}
    others = load("", {"HOME": "/home/ada"}).overlooked_log_dirs(there.__contains__)
    assert others == ["/tmp/kafka-logs", "/var/lib/kafkalog"]
    assert load().overlooked_log_dirs(there.__contains__) == ["/tmp/kafka-logs"]
    assert load("log.dirs=/a").overlooked_log_dirs(there.__contains__) == []


def test_a_small_segment_is_refused_with_the_key_that_takes_it() -> None:
    """Kafka 4: at least 1 MiB; tests set Kafka's internal key."""
    advice = (
        "the smallest is 1MiB; for tests there is the topic key internal.segment.bytes, which may"
        " be smaller"
    )
    with pytest.raises(InvalidTopicConfig, match=advice):
        load().topic_config({"segment.bytes": "1048575"})
    with pytest.raises(InvalidConfig, match=advice):
        load("log.segment.bytes=1048575")
    with pytest.raises(InvalidRequest, match=advice):
        load().topic_defaults({"log.segment.bytes": "1048575"})
    assert load().topic_config({"internal.segment.bytes": "7"}).max_segment_bytes == 7


def test_an_offset_map_that_holds_no_key_is_refused() -> None:
    """Kafka's sentence, at the start and at a change; else every log would fail its first clean."""
    sentence = (
        "offset map is too small to fit in even a single message, so log cleaning will never make "
        r"progress. You can increase log\.cleaner\.dedupe\.buffer\.size or decrease log"
    )
    smallest = "log.cleaner.dedupe.buffer.size=1048600\nlog.cleaner.io.buffer.load.factor="
    for factor in ("0.00002", "1e-300"):  # of 43,691 slots
        with pytest.raises(InvalidConfig, match=sentence):
            load(smallest + factor)
        with pytest.raises(InvalidRequest, match=sentence):
            load("log.cleaner.dedupe.buffer.size=1048600").cleaner_config(
                {"log.cleaner.io.buffer.load.factor": factor}
            )
        load(f"{smallest}{factor}\nlog.cleaner.threads=0")  # no map
    with pytest.raises(InvalidConfig, match="must be at least 1MB per cleaner thread: more than"):
        load("log.cleaner.dedupe.buffer.size=4194304\nlog.cleaner.threads=4")
    config = load(smallest + "0.000025").broker.cleaner
    assert SkimpyOffsetMap(config.map_bytes, config.io_buffer_load_factor).capacity == 1


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("log.segment.byte", "log.segment.bytes"),
        ("htpp.port", "http.port"),
        ("log.dir.", "log.dir"),
        ("num.partitons", "num.partitions"),
        ("replica.alter.log.dirs.io.max.byte.per.secnd", None),  # both are away
    ],
)
def test_a_key_that_looks_mistyped_stops_the_start(name: str, meant: str | None) -> None:
    """Two characters at most, in a file or a variable, with the place; unless it is allowed."""
    meant = meant or "replica.alter.log.dirs.io.max.bytes.per.second"
    said = f"Nothing reads {name}; did you mean {meant}? --allow-unknown makes it a warning"
    with pytest.raises(InvalidConfig) as raised:
        load_settings(None, {}, {}, files={"s": f"# x\n{name}=5".encode()})
    assert raised.value.message == f"{said} (from s:2)"
    variable = "KAFKALOG_" + name.replace(".", "_").upper()
    with pytest.raises(InvalidConfig) as raised:
        load_settings(None, {variable: "5"}, {})
    assert raised.value.message == f"{said} (from {variable})"
    allowed = load_settings(None, {}, {}, files={"s": f"{name}=5".encode()}, allow_unknown=True)
    assert len(allowed.notices) == 1


def test_no_key_of_a_kafka_stops_the_start() -> None:
    """Of any broker from 0.8 on; those that apply here, and those that do not, which are named."""
    assert len(KAFKA_KEYS) > 390
    others = sorted(KAFKA_KEYS - BROKER_LEVEL.keys())
    settings = load("".join(f"{key}=1\n" for key in others))
    levels = [notice.level for notice in settings.notices if "do not apply" in notice.message]
    assert levels == ["info"]
    told = messages(settings)
    assert all(key in told for key in others)
    for key in ("advertised.listeners", "zookeeper.connect", "process.roles"):
        assert key in others


def test_the_list_of_kafkas_keys_costs_a_start_nothing() -> None:
    """It is read when a key is unknown."""
    code = (
        "import sys; from kafkalog.settings import load_settings; "
        "load_settings(b'http.port=1', {}, {}); "
        "print('kafkalog.settings.kafka_keys' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "False\n"


def server_of(text: str, env: dict[str, str] | None = None, **overrides: str) -> tuple[str, int]:
    server = load(text + "\nhttp.auth=none", env, **overrides).server
    return server.http_host, server.http_port


@pytest.mark.parametrize(
    ("value", "host", "port"),
    [
        ("http://0.0.0.0:9000", "0.0.0.0", 9000),
        ("HTTP://127.0.0.1:9000/", "127.0.0.1", 9000),
        ("http://[::1]:9000", "::1", 9000),
        ("http://:9000", "", 9000),
        ("http://*:9000", "", 9000),
        ("PLAINTEXT://:9092, http://localhost:9000", "localhost", 9000),
    ],
)
def test_listeners_of_http_are_host_and_port(value: str, host: str, port: int) -> None:
    assert server_of(f"listeners={value}") == (host, port)
    assert server_of("", {"KAFKA_LISTENERS": value}) == (host, port)
    assert server_of("", listeners=value) == (host, port)


def test_listeners_are_mapped_in_their_own_source() -> None:
    """A later source wins, whichever of the two it names; a source's own port wins in it."""
    there = "listeners=http://127.0.0.2:9000"
    assert server_of(there, {"KAFKALOG_HTTP_PORT": "9001"}) == ("127.0.0.2", 9001)
    assert server_of(f"{there}\nhttp.port=9002") == ("127.0.0.2", 9002)
    assert server_of("http.port=9002", listeners="http://127.0.0.3:9003") == ("127.0.0.3", 9003)
    assert server_of(there, {"KAFKA_LISTENERS": "PLAINTEXT://:9092"}) == ("127.0.0.2", 9000)
    settings = load(there)
    assert not settings.notices
    assert settings.values["http.port"].source is Source.FILE
    (notice,) = load(f"{there},PLAINTEXT://:9092").notices
    assert (notice.level, "PLAINTEXT://:9092 opens no port" in notice.message) == ("info", True)


def test_listeners_of_kafka_alone_are_answered_with_what_to_write() -> None:
    """The port is then the default one, which a Kafka user does not expect."""
    remedy = "only HTTP is spoken; set http.host and http.port, or listeners=http://HOST:PORT"
    kafkas = "PLAINTEXT://:9092,SSL://:9093"
    (notice,) = load(f"listeners={kafkas}").notices
    assert (notice.level, notice.message) == (
        "info",
        f"listeners: {kafkas} opens no port: {remedy}",
    )
    with pytest.raises(InvalidConfig) as raised:
        load("", listeners=kafkas)
    told = f"Nothing reads listeners={kafkas}: {remedy} (from --override)"
    assert raised.value.message == told


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("listeners=http://localhost", "http://localhost is not http://HOST:PORT"),
        ("listeners=http://a:1/topics", "is not http://HOST:PORT"),
        ("listeners=http://127.0.0.1:1,https://127.0.0.1:2", "more than one address for HTTP"),
        ("listeners=https://127.0.0.1:1", "https needs http.tls.cert.file"),
        (
            "listeners=http://127.0.0.1:1\nhttp.tls.cert.file=c\nhttp.tls.key.file=k",
            "with http.tls.cert.file the port serves https",
        ),
        ("listeners=http://127.0.0.1:70000", "Invalid value 70000 for configuration http.port"),
        ("listeners=http://10.0.0.1:1", "http.host=10.0.0.1 can be reached"),
    ],
)
def test_listeners_that_cannot_be_are_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidConfig, match=fault):
        load(text)
