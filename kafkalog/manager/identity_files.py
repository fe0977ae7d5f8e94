"""The two files by which a log directory is known, as they lie on the disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.format.disk.properties import MetaProperties, decode_meta_properties
from kafkalog.format.integers import FormatError
from kafkalog.manager.log_dir import META_PROPERTIES, REGISTRY_FILE
from kafkalog.manager.root_files import read_root_file
from kafkalog.manager.topic_registry import (
    DamagedCopy,
    NewerRegistryFormat,
    RegistryState,
    decode_registry,
    of_newer_version,
)

if TYPE_CHECKING:
    from kafkalog.env.filesystem import ReadFilesystem


@dataclass(frozen=True, slots=True)
class IdentityFiles:
    """What the two files of one log directory say; None: not there, or damaged."""

    path: str
    meta: MetaProperties | None = None
    meta_damage: str | None = None
    registry: RegistryState | None = None
    registry_damage: DamagedCopy | None = None


def read_identity_files(path: str, filesystem: ReadFilesystem) -> IdentityFiles:
    """For tools; takes no lock. OSError; UnusableLogDirs: a later version wrote the registry."""
    meta, meta_damage = None, None
    try:
        data = read_root_file(filesystem, f"{path}/{META_PROPERTIES}")
        meta = None if data is None else decode_meta_properties(data)
    except FormatError as error:
        meta_damage = str(error)
    registry, registry_damage, copy = None, None, b""
    try:
        data = read_root_file(filesystem, f"{path}/{REGISTRY_FILE}")
        if data is not None:
            copy = data
            registry = decode_registry(data)
    except NewerRegistryFormat as error:
        raise of_newer_version(f"{path}/{REGISTRY_FILE}", error) from error
    except FormatError as error:
        registry_damage = DamagedCopy(str(error), copy)
    return IdentityFiles(path, meta, meta_damage, registry, registry_damage)
