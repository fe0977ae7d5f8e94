"""Configs of the daemon or of a topic: values, defaults and sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import AliasChoices, Field

from kafkalog.console.view import Fragment, View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.values import ConfigEntry


CHAIN = AliasChoices("chain", "synonyms")
"""Sources are ``synonyms`` in the values of the broker."""


class ConfigLink(Fragment):
    """One source of a config; value null: not set there."""

    name: str
    value: str | None
    source: str


class ConfigDiffRow(ConfigLink):
    """An effective config and its ``default``; ``chain``: its sources, strongest first."""

    default: str | None
    is_default: bool
    is_read_only: bool
    chain: list[ConfigLink] = Field(validation_alias=CHAIN)


class ConfigsView(View):
    """``topic`` null: the daemon's own. ``configs``: all, or those that were set."""

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
    return ConfigsView(
        now_ms=operations.now_ms(),
        topic=topic,
        is_all=is_all,
        name_contains=name_contains,
        total=len(rows),
        set_count=sum(not each.is_default for each in rows),
        configs=[
            each for each in rows if name_contains in each.name and (is_all or not each.is_default)
        ],
    )
