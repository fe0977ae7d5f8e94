"""What ``kafkalog doctor`` finds, and its repair.

The facts are the log directories, their mounts (Linux' /proc/self/mountinfo) and the limits of the
process; gathering them changes nothing. The rules are pure. An error keeps a daemon from starting,
or costs records that it promised to keep; a warning will surprise somebody; an info is good to
know. The repair is ``broker.directory.repair``; it holds the lock of every log directory while it
works.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kafkalog.broker.directory.identity import (
    IdentityFiles,
    doctor_command,
    node_id_of,
    plan_identities,
    read_identity_files,
)
from kafkalog.broker.directory.log_dir import LOCK_FILE, META_PROPERTIES, REGISTRY_FILE
from kafkalog.broker.directory.repair import LogDirRepair
from kafkalog.broker.topics.registry import registered_configs
from kafkalog.cli.configs import settings_from
from kafkalog.cli.offline.hand_over import access_fault
from kafkalog.env.clock import SystemClock
from kafkalog.env.process_facts import descriptor_limit
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.env.system_threads import SystemThreads
from kafkalog.errors import InvalidConfig, InvalidTopicConfig, StorageFault, UnusableLogDirs
from kafkalog.format.disk.file_names import LOG_SUFFIX, segment_file_name
from kafkalog.format.topic_names import live_partition
from kafkalog.log.inspect.directory_facts import check_apart, known_lost, log_dir_path
from kafkalog.observe.logging import configure_logging

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkalog.broker.broker_config import BrokerConfig
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.log_config import LogConfig
    from kafkalog.settings import Settings


# ---- mounts

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One of them. ``options`` are the mount's and the file system's together."""

    point: str
    kind: str
    options: frozenset[str]


def parse_mounts(text: str) -> list[Mount]:
    """In the order of the file: a later one on the same point lies over the earlier one."""
    mounts = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if not separator or len(fields) < 6 or len(rest) < 3:
            continue  # no line of this file
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        options = {*fields[5].split(","), *rest[2].split(",")}
        mounts.append(Mount(point, rest[0], frozenset(options)))
    return mounts


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """The one that holds an absolute path without links."""
    found = None
    for mount in mounts:
        inside = mount.point.rstrip("/") + "/"
        is_nearer = found is None or len(mount.point) >= len(found.point)
        if f"{path}/".startswith(inside) and is_nearer:
            found = mount
    return found


# ---- facts

_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class LogDirFacts:
    """One log directory. Of one that is absent, the rest is told of the nearest that exists.

    used_bytes  of its files on the disk
    partitions  how many of each topic lie there
    overrides   configs of each topic that its registry knows
    identity    its registry and meta.properties; None of one that is absent
    lost        first and last offset of what is known to be lost, by partition directory
    """

    path: str
    exists: bool
    is_writable: bool
    is_in_use: bool
    used_bytes: int
    usable_bytes: int
    device: int
    mount: Mount | None
    partitions: Mapping[str, int]
    overrides: Mapping[str, Mapping[str, str]]
    identity: IdentityFiles | None = None
    lost: Mapping[str, Sequence[tuple[int, int | None]]] = field(default_factory=dict)


def log_dir_facts(log_dirs: Sequence[str], filesystem: Filesystem) -> list[LogDirFacts]:
    """Look at them now. OSError when a directory cannot be looked at, UnusableLogDirs."""
    try:
        mounts = parse_mounts(_MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        mounts = []  # no Linux, or hidden: what is mounted where is then not judged
    paths = dict.fromkeys(log_dir_path(filesystem, entry) for entry in log_dirs)
    return [_log_dir(path, filesystem, mounts) for path in paths]


def _log_dir(path: str, filesystem: Filesystem, mounts: list[Mount]) -> LogDirFacts:
    exists = os.path.isdir(path)
    nearest = path
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    lock = os.path.join(path, LOCK_FILE)
    names = filesystem.list_dir(path) if exists else []
    return LogDirFacts(
        path,
        exists,
        os.access(nearest, os.W_OK | os.X_OK),
        exists and filesystem.exists(lock) and filesystem.is_locked(lock),
        _used_bytes(path),
        filesystem.space(nearest).usable_bytes,
        filesystem.device(nearest),
        mount_of(filesystem.real_path(nearest), mounts),
        Counter(each.topic for each in map(live_partition, names) if each is not None),
        registered_configs(path, filesystem) if exists else {},
        read_identity_files(path, filesystem) if exists else None,
        _lost(path, names, filesystem),
    )


def _lost(
    path: str, names: Iterable[str], filesystem: Filesystem
) -> dict[str, Sequence[tuple[int, int | None]]]:
    """Of the partitions that lie there, those with a loss. OSError."""
    lost: dict[str, Sequence[tuple[int, int | None]]] = {}
    for directory in (f"{path}/{name}" for name in sorted(names) if live_partition(name)):
        with suppress(FileNotFoundError):  # deleted meanwhile
            if found := known_lost(directory, filesystem):
                lost[directory] = found
    return lost


def _used_bytes(path: str) -> int:
    """The blocks of all files below a directory. Those that vanish or are others' do not count."""
    used_bytes = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                used_bytes += os.lstat(os.path.join(directory, name)).st_blocks * _BLOCK_BYTES
    return used_bytes


# ---- rules

Level = Literal["error", "warning", "info"]

_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs"})
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_WITHOUT_BARRIERS = frozenset({"nobarrier", "barrier=0"})
_HOURS_MS = 3_600_000
_BLOCK_BYTES = 512  # of stat, whatever the file system's are
_NOTICE_LEVELS: dict[str, Level] = {"warning": "warning", "info": "info"}


@dataclass(frozen=True, slots=True)
class Finding:
    """``subject``: the key, topic or directory that it is about."""

    level: Level
    subject: str
    message: str


def findings(
    settings: Settings, log_dirs: Sequence[LogDirFacts], descriptor_limit: int
) -> list[Finding]:
    """All of them, the worst first. ``descriptor_limit``: how many a daemon could have."""
    found = [
        # Unknown keys, keys without effect, ports that are open to others.
        *(
            Finding(_NOTICE_LEVELS[notice.level], "configuration", notice.message)
            for notice in settings.notices
        ),
        *_of_descriptors(settings, descriptor_limit),
        *_of_cleaner(settings, log_dirs),
        *_of_topics(settings, log_dirs),
        *_of_identities(settings, log_dirs),
    ]
    for log_dir in log_dirs:
        found += [*_of_directory(settings, log_dir), *_of_mount(log_dir)]
        found += [*_of_losses(log_dir), *_of_limits(settings, log_dir)]
    found += _of_devices(log_dirs)
    order = ("error", "warning", "info")
    return sorted(found, key=lambda finding: order.index(finding.level))


def _of_descriptors(settings: Settings, limit: int) -> Iterator[Finding]:
    kept = settings.broker.within_descriptors(limit).log_dir_max_open_files
    wanted = settings.broker.log_dir_max_open_files
    if kept < wanted:
        yield Finding(
            "warning",
            "open files",
            f"a process may have {limit}, so a log directory keeps {kept} segments open instead of"
            f" {wanted}; raise the limit (ulimit -n, LimitNOFILE)",
        )


def _of_cleaner(settings: Settings, log_dirs: Sequence[LogDirFacts]) -> Iterator[Finding]:
    if settings.broker.log_cleaner_enable:
        return
    for topic, config in _configs(settings, log_dirs):
        if config is not None and "compact" in config.cleanup_policy:
            yield Finding(
                "warning",
                f"topic {topic}",
                "it is compacted and log.cleaner.enable=false: it grows without bound",
            )


def _configs(
    settings: Settings, log_dirs: Sequence[LogDirFacts]
) -> Iterator[tuple[str, LogConfig | None]]:
    """Every topic with its configuration, by name; None for one that would be refused."""
    overrides: dict[str, Mapping[str, str]] = {}
    for log_dir in log_dirs:
        overrides |= log_dir.overrides
    for topic in sorted({name for log_dir in log_dirs for name in log_dir.partitions}):
        yield topic, _config(settings, overrides.get(topic, {}))


def _config(settings: Settings, overrides: Mapping[str, str]) -> LogConfig | None:
    try:
        return settings.topic_config(overrides)
    except InvalidTopicConfig:
        return None


def _of_topics(settings: Settings, log_dirs: Sequence[LogDirFacts]) -> Iterator[Finding]:
    yield from _of_retention("defaults of topics", settings.broker.topic_defaults)
    defaults = settings.broker.topic_defaults
    for topic, config in _configs(settings, log_dirs):
        if config is None:
            message = "its configs are not valid: a start keeps it out of service"
            yield Finding("error", f"topic {topic}", message)
        elif config != defaults:
            yield from _of_retention(f"topic {topic}", config)


def _of_retention(subject: str, config: LogConfig) -> Iterator[Finding]:
    """Limits that segments keep from working: retention takes whole segments that are closed."""
    if "delete" not in config.cleanup_policy:
        return
    size = config.max_segment_bytes
    if 0 <= config.retention_bytes < size:
        yield Finding(
            "warning",
            subject,
            f"retention.bytes={config.retention_bytes} is below segment.bytes={size}: a partition"
            f" keeps up to {config.retention_bytes + size} bytes",
        )
    if 0 <= config.retention_ms < config.segment_ms:
        hours = config.segment_ms // _HOURS_MS
        yield Finding(
            "info",
            subject,
            f"retention.ms={config.retention_ms} is below segment.ms={config.segment_ms}: while"
            f" records arrive slowly the oldest ones stay up to {hours} h longer",
        )


def _of_identities(settings: Settings, log_dirs: Sequence[LogDirFacts]) -> Iterator[Finding]:
    """Damaged registries and meta.properties, and directories that do not belong together."""
    found = [each.identity for each in log_dirs if each.identity is not None]
    try:
        node_id = node_id_of(found, settings.broker.node_id)
        plan = plan_identities(found, node_id, lambda _path, _state: ())
    except UnusableLogDirs as error:
        yield Finding("error", "log.dirs", error.message)
        return
    remedy = doctor_command([each.path for each in log_dirs], node_id)
    for path, (_, reason) in plan.meta.items():
        message = f"it is damaged ({reason}); a start writes it anew, as does {remedy}"
        yield Finding("warning", f"{path}/{META_PROPERTIES}", message)
    for path in plan.registry:
        message = f"it is damaged; a start writes it anew from a whole copy, as does {remedy}"
        yield Finding("warning", f"{path}/{REGISTRY_FILE}", message)
    for path, reasons in plan.unproven.items():
        for reason in reasons:
            yield Finding("error", path, f"{reason}. Stop the daemon and run {remedy}")


def _of_directory(settings: Settings, log_dir: LogDirFacts) -> Iterator[Finding]:
    path, free_min = log_dir.path, settings.broker.log_dir_min_free_bytes
    if not log_dir.is_writable:
        yield Finding("error", path, "nothing can be written there")
    elif not log_dir.exists:
        yield Finding("info", path, "it does not exist yet: the start makes it")
    if log_dir.is_in_use:
        yield Finding("info", path, "a broker or a daemon is using it")
    if log_dir.usable_bytes < free_min:
        yield Finding(
            "error",
            path,
            f"{log_dir.usable_bytes} bytes are free, log.dir.min.free.bytes={free_min}: appends are"
            " refused",
        )
    if path.startswith("/tmp/"):
        yield Finding("warning", path, "what lies in /tmp may be gone after the next boot")


def _of_losses(log_dir: LogDirFacts) -> Iterator[Finding]:
    for directory, ranges in log_dir.lost.items():
        for first, last in ranges:
            offsets = f"offsets from {first} on" if last is None else f"offsets {first} to {last}"
            yield Finding(
                "error",
                directory,
                f"{offsets} are lost: {segment_file_name(first, LOG_SUFFIX)} is missing;"
                " `kafkalog runbooks describe lost-offsets` says what to do",
            )


def _of_mount(log_dir: LogDirFacts) -> Iterator[Finding]:
    mount = log_dir.mount
    if mount is None:
        return
    where = f"{mount.point} ({mount.kind})"
    if "ro" in mount.options and log_dir.is_writable:
        yield Finding("error", log_dir.path, f"{where} is mounted read-only")
    if mount.kind in _IN_MEMORY:
        yield Finding("warning", log_dir.path, f"{where} is memory: a power cut takes all of it")
    if mount.kind in _REMOTE:
        message = f"{where} is remote: locks and syncs are as good as its server"
        yield Finding("warning", log_dir.path, message)
    if mount.options & _WITHOUT_BARRIERS:
        message = f"{where} is mounted without barriers: a power cut takes what was synced"
        yield Finding("error", log_dir.path, message)
    if "data=writeback" in mount.options:
        message = f"{where} has data=writeback: recovery after a power cut may find stale bytes"
        yield Finding("warning", log_dir.path, message)


def _of_limits(settings: Settings, log_dir: LogDirFacts) -> Iterator[Finding]:
    """What the limits by size allow all partitions together, against what the log can get.

    The size of the file system says little: it has reserved blocks and files of other programs.
    """
    allowed_bytes = bounded = 0
    unbounded = []
    for topic, count in sorted(log_dir.partitions.items()):
        config = _config(settings, log_dir.overrides.get(topic, {}))
        if config is None or "delete" not in config.cleanup_policy:
            continue
        if config.retention_bytes < 0:
            unbounded.append(topic)
        else:
            bounded += count
            allowed_bytes += count * (config.retention_bytes + config.max_segment_bytes)
    free_min = settings.broker.log_dir_min_free_bytes
    room_bytes = max(log_dir.used_bytes + log_dir.usable_bytes - free_min, 0)
    is_over = allowed_bytes > room_bytes
    yield Finding(
        "warning" if is_over else "info",
        log_dir.path,
        f"retention.bytes and segment.bytes of {bounded} of its {sum(log_dir.partitions.values())}"
        f" partitions allow {allowed_bytes} bytes; there is room for {room_bytes}"
        f" ({log_dir.used_bytes} used by it and {log_dir.usable_bytes} free, less"
        f" log.dir.min.free.bytes)" + (": it can be full before retention deletes" * is_over),
    )
    if unbounded:
        names = ", ".join(unbounded[:3]) + (" and others" if len(unbounded) > 3 else "")
        message = f"no limit by size (retention.bytes) for {names}: time alone bounds them"
        yield Finding("info", log_dir.path, message)


def _of_devices(log_dirs: Sequence[LogDirFacts]) -> Iterator[Finding]:
    for first, second in combinations(log_dirs, 2):
        if first.device == second.device:
            message = f"it is on the same disk as {first.path}: they fill and fail together"
            yield Finding("info", second.path, message)


# ---- the work


def examined(properties: tuple[str, ...], overrides: tuple[str, ...]) -> list[Finding]:
    """The findings; of a configuration that a daemon would refuse, only that."""
    filesystem = SystemFilesystem()
    try:
        settings = settings_from(properties, overrides)
        check_apart(filesystem, settings.broker.log_dirs)
        facts = log_dir_facts(settings.broker.log_dirs, filesystem)
    except InvalidConfig as error:
        return [Finding("error", "configuration", error.message)]
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    unusable = [
        Finding("error", each.path, fault)
        for each in facts
        if each.exists and each.is_writable
        if (fault := access_fault(each.path, os.geteuid())) is not None
    ]
    return [*unusable, *_of_default(settings), *findings(settings, facts, descriptor_limit())]


def _of_default(settings: Settings) -> Iterator[Finding]:
    """That no directory was named: a daemon may have another default."""
    if not settings.has_default_log_dir:
        return
    path = settings.broker.log_dirs[0]
    for other in settings.overlooked_log_dirs(os.path.exists):
        message = f"it holds data, but {path} is examined: add --override log.dirs={other}"
        yield Finding("warning", other, message)
    yield Finding(
        "info",
        path,
        "log.dirs is not set, and this is its default for this user here; a service with a "
        "StateDirectory or another home has another one. Give the arguments of the daemon, or "
        "--override log.dirs=DIR",
    )


def repaired(
    properties: tuple[str, ...],
    overrides: tuple[str, ...],
    cluster_id: str | None,
    *,
    dry_run: bool,
) -> list[Finding]:
    """Repaired files, or those that would be, as infos; the others as errors."""
    configure_logging(sys.stderr, log_format="console", level="error")
    found: list[Finding] = []
    try:
        settings = settings_from(properties, overrides)
        found += _of_default(settings)
        with _open_repair(settings.broker, cluster_id) as repair:
            for step, kept in repair.run(dry_run=dry_run):
                message = f"would be repaired: {step.message}" if dry_run else step.message
                if kept is not None:
                    message += f"; the damaged file is kept as {kept}"
                level: Level = "error" if step.data is None else "info"
                found.append(Finding(level, step.file, message))
    except InvalidConfig as error:
        found.append(Finding("error", "configuration", error.message))
    except StorageFault as fault:
        found.append(Finding("error", str(fault.details.get("log_dir")), fault.message))
    return found


@contextmanager
def _open_repair(broker: BrokerConfig, cluster_id: str | None) -> Iterator[LogDirRepair]:
    """All existing log directories, locked.

    InvalidConfig when there is none, or a daemon uses one; StorageFault.
    """
    filesystem = SystemFilesystem()
    check_apart(filesystem, broker.log_dirs)
    paths = dict.fromkeys(log_dir_path(filesystem, entry) for entry in broker.log_dirs)
    existing = [path for path in paths if filesystem.exists(path)]
    if not existing:
        raise InvalidConfig(
            f"None of the log directories exists, so nothing was repaired: {', '.join(paths)}. "
            "Name those of the daemon: give its arguments, or --override log.dirs=DIR",
            key="log.dirs",
        )
    seams = (filesystem, SystemClock(), SystemRandom(), SystemThreads(_thread_failed))
    repair = LogDirRepair(existing, broker.node_id, cluster_id, seams)
    try:
        repair.open()
        yield repair
    finally:
        repair.close()


def _thread_failed(name: str, error: BaseException) -> None:
    """The repair starts no thread."""
    raise AssertionError(name) from error
