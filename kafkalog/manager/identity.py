"""Whom the log directories belong to: one cluster, one node, one ``directory.id`` each.

Owns the comparison of their ``meta.properties``; ``log_dir.py`` reads and writes the file. Changes
nothing, so that a start that is refused here leaves the directories as they were.
Source: Kafka's MetaPropertiesEnsemble.verify.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import InvalidConfig
from kafkalog.manager.log_dir import META_PROPERTIES, damaged_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.manager.log_dir import LogDir


def agreed_cluster_id(log_dirs: Iterable[LogDir], node_id: int) -> str | None:
    """The cluster.id that the opened directories share, None when none has one.

    InvalidConfig: damaged, of two clusters, of another node, or one is the copy of another.
    """
    log_dirs = tuple(log_dirs)
    _refuse_damaged(log_dirs)
    known: dict[object, str] = {}
    clusters: dict[str, str] = {}
    for log_dir in log_dirs:
        meta, path = log_dir.meta, log_dir.path
        if meta is None:
            continue
        if meta.cluster_id is not None:
            clusters.setdefault(meta.cluster_id, path)
        if meta.node_id is not None and meta.node_id != node_id:
            raise InvalidConfig(
                f"Stored node id {meta.node_id} of {path} does not match node.id {node_id}",
                log_dir=path,
            )
        if meta.directory_id is not None and known.setdefault(meta.directory_id, path) != path:
            raise InvalidConfig(
                f"{path} and {known[meta.directory_id]} have the same directory.id: one is a "
                "copy of the other",
                log_dir=path,
            )
    if len(clusters) > 1:
        raise InvalidConfig(f"Log directories belong to different clusters: {clusters}")
    return next(iter(clusters), None)


def _refuse_damaged(log_dirs: Sequence[LogDir]) -> None:
    """InvalidConfig with every damaged file and what the whole ones say."""
    damaged = {
        f"{log_dir.path}/{META_PROPERTIES}": log_dir.meta_damage
        for log_dir in log_dirs
        if log_dir.meta_damage is not None
    }
    if not damaged:
        return
    copies = [
        f"{log_dir.path}/{META_PROPERTIES} is whole (cluster.id={log_dir.meta.cluster_id}, "
        f"node.id={log_dir.meta.node_id})"
        for log_dir in log_dirs
        if log_dir.meta is not None
    ]
    whose = "the same cluster.id" if copies else "a new cluster.id"
    meaning = (
        f"The file is then written with {whose} and a new directory.id, which nobody misses but a "
        "Kafka broker that is given the directory back"
    )
    raise InvalidConfig(damaged_files(damaged, copies, meaning), file=next(iter(damaged)))
