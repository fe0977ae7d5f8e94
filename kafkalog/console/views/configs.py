"""Configs of the daemon or of a topic: values, defaults and sources, in sections.

Values are Kafka's: numbers of milliseconds and bytes. Pages say them in words (``7 d``, ``1 GiB``)
beside the number; the JSON view has the number alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pydantic import AliasChoices, Field

from kafkalog.console.formatting import config_value
from kafkalog.console.view import Fragment, View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.values import ConfigEntry


CHAIN = AliasChoices("chain", "synonyms")
"""Sources are ``synonyms`` in the values of the broker."""
_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "of the topic",
    "DYNAMIC_BROKER_CONFIG": "set while running",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "set while running",
    "STATIC_BROKER_CONFIG": "file or command line",
    "DEFAULT_CONFIG": "default",
}
# A key is in the first section that has one of its beginnings; the last section takes the rest.
_SECTIONS = {
    title: tuple(starts.split())
    for title, starts in {
        "Compaction": "log.cleaner. min.cleanable. min.compaction. max.compaction."
        " delete.retention.",
        "Retention and deletion": "retention. log.retention. cleanup.policy log.cleanup.policy"
        " file.delete. log.segment.delete. archive. quota.",
        "Segments, indexes and flushes": "segment. log.segment. internal.segment. log.roll. index."
        " log.index. flush. log.flush. preallocate log.preallocate replica.high.watermark.",
        "Records and topics": "message. max.message. log.message. compression. auto.create."
        " num.partitions max.partitions. max.decompressed. http.produce.acks",
        "Log directories and start": "log.dir cordoned. unusable. create.missing. adopt."
        " num.recovery. num.io. replica.alter. log.recovery. log.initial.",
        "HTTP and access": "http. admin. access. connections. max.connections queued. socket."
        " console. fetch.",
        "Groups, producers and transactions": "offset consumer. producer. transaction",
        "Metrics and logging": "metrics. log.level log.format",
        "Replication and tiered storage, without effect": "min.insync. unclean.leader. leader."
        " follower. remote. local.retention. log.local.",
    }.items()
}
_REST = "Other"


class ConfigLink(Fragment):
    """One source of a config; value null: not set there."""

    name: str
    value: str | None
    source: str

    @property
    def words(self) -> str | None:
        """The value for people; None: as it is."""
        return config_value(self.name, self.value)

    @property
    def source_words(self) -> str:
        """The source for people."""
        return _SOURCES.get(self.source, self.source)


class ConfigDiffRow(ConfigLink):
    """An effective config and its ``default``; ``chain``: its sources, strongest first."""

    default: str | None
    is_default: bool
    is_read_only: bool
    documentation: str
    chain: list[ConfigLink] = Field(validation_alias=CHAIN)

    @property
    def default_words(self) -> str | None:
        """As ``words``."""
        return config_value(self.name, self.default)

    @property
    def section(self) -> str:
        """The heading under which it is listed."""
        found = (title for title, starts in _SECTIONS.items() if self.name.startswith(starts))
        return next(found, _REST)


class ConfigSection(NamedTuple):
    """Configs of one subject, by name."""

    title: str
    configs: list[ConfigDiffRow]


class ConfigsView(View):
    """``topic`` null: the daemon's own. ``configs``: all, or those that were set.

    A search is of all, too.
    """

    template: ClassVar[str] = "configs.html"

    topic: str | None
    is_all: bool
    name_contains: str
    total: int
    set_count: int
    configs: list[ConfigDiffRow]

    @property
    def title(self) -> str:
        """See View."""
        return "Configuration" if self.topic is None else f"Configuration of {self.topic}"

    @property
    def set_ones(self) -> list[ConfigDiffRow]:
        """Those that differ from the defaults because somebody set them."""
        return [each for each in self.configs if not each.is_default]

    @property
    def sections(self) -> list[ConfigSection]:
        """The others by subject; none that is empty."""
        found = {title: list[ConfigDiffRow]() for title in (*_SECTIONS, _REST)}
        for each in self.configs:
            if each.is_default:
                found[each.section].append(each)
        return [ConfigSection(title, rows) for title, rows in found.items() if rows]


def configs_view(
    operations: Operations, topic: str | None, name_contains: str, *, is_all: bool
) -> ConfigsView:
    """The configs of a topic, or of the daemon. No disk. Raises UnknownTopic."""
    entries: Iterable[ConfigEntry] = (
        operations.describe_broker_configs()
        if topic is None
        else operations.topics.describe(topic).configs
    )
    rows = [ConfigDiffRow.model_validate(entry) for entry in entries]
    wanted = name_contains.strip().lower()
    return ConfigsView(
        now_ms=operations.now_ms(),
        topic=topic,
        is_all=is_all,
        name_contains=name_contains,
        total=len(rows),
        set_count=sum(not each.is_default for each in rows),
        configs=[
            each
            for each in rows
            if wanted in each.name and (is_all or wanted or not each.is_default)
        ],
    )
