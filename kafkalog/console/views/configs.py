"""Configs of the daemon or of a topic beside their defaults: what is set, by whom, over what."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kafkalog.console.view import Fragment, View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.values import ConfigEntry


class ConfigLink(Fragment):
    """One source of a config; value null: not set."""

    name: str
    value: str | None
    source: str


class ConfigDiffRow(ConfigLink):
    """An effective config. ``default`` counts where nobody set it; ``chain`` strongest first."""

    default: str | None
    is_default: bool
    is_read_only: bool
    chain: list[ConfigLink]


class ConfigsView(View):
    """``topic`` null: the daemon's own. ``configs``: all, or those that somebody set."""

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
        return "Configs of the daemon" if self.topic is None else f"Configs of {self.topic}"


def broker_configs_view(operations: Operations, name_contains: str, *, is_all: bool) -> ConfigsView:
    """The daemon's; no disk."""
    entries = operations.describe_broker_configs()
    return _view(operations.now_ms(), None, entries, name_contains, is_all=is_all)


def topic_configs_view(
    operations: Operations, topic: str, name_contains: str, *, is_all: bool
) -> ConfigsView:
    """A topic's; UnknownTopic. No disk."""
    entries = operations.topics.describe(topic).configs
    return _view(operations.now_ms(), topic, entries, name_contains, is_all=is_all)


def _view(
    now_ms: int,
    topic: str | None,
    entries: Iterable[ConfigEntry],
    name_contains: str,
    *,
    is_all: bool,
) -> ConfigsView:
    rows = [_row(entry) for entry in entries]
    return ConfigsView(
        now_ms=now_ms,
        topic=topic,
        is_all=is_all,
        name_contains=name_contains,
        total=len(rows),
        set_count=sum(not each.is_default for each in rows),
        configs=[
            each for each in rows if name_contains in each.name and (is_all or not each.is_default)
        ],
    )


def _row(entry: ConfigEntry) -> ConfigDiffRow:
    chain = [
        ConfigLink(name=each.name, value=each.value, source=each.source) for each in entry.synonyms
    ]
    return ConfigDiffRow(
        name=entry.name,
        value=entry.value,
        source=entry.source,
        default=entry.default,
        is_default=entry.is_default,
        is_read_only=entry.is_read_only,
        chain=chain,
    )
