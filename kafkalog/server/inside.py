"""What is shown of the process itself: coroutines, threads, configuration, metrics; all as a file.

Reads what the process has in memory, and its own entries under /proc; never a log directory. The
values that nobody may see are hidden where the settings are shown (``ResolvedValue``).
"""

from __future__ import annotations

import asyncio
import io
import platform
import re
import tarfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalog import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.settings import Settings

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? ")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
# Of this process; what a report of a fault is judged by.
_PROC_FILES = ("status", "limits", "mountinfo")
_GZIP_LEVEL = 6
_SLICE = 100  # lines of the metrics page between two turns of the loop: less than a millisecond


def inside_tasks() -> dict[str, object]:
    """Coroutines and threads. On the event loop."""
    return {
        "loop": [
            {"name": task.get_name(), **_coroutine(task.get_coro())}
            for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
        ],
        "threads": [
            {"name": one.name, "native_id": one.native_id, "is_daemon": one.daemon}
            for one in threading.enumerate()
        ],
    }


def _coroutine(outermost: Any) -> dict[str, object]:  # noqa: ANN401 - coroutine, generator or other awaitable
    """Its name, and the lines on which it and those it awaits stand still."""
    lines: list[str] = []
    inner = outermost
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
        if frame is None:
            break
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        lines.append(f"{place} {frame.f_code.co_qualname}")
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    return {"coroutine": getattr(outermost, "__qualname__", repr(outermost)), "waits_at": lines}


def inside_config(settings: Settings) -> dict[str, object]:
    """Every listed key with its value, or ``***``, and who gave it."""
    return {
        "configs": [
            {
                "name": key,
                "value": one.shown_text,
                "source": one.source.value,
                "origin": one.origin,
            }
            for key, one in sorted(settings.values.items())
            if not one.setting.internal
        ],
        "notices": [notice.message for notice in settings.notices],
    }


async def metrics_cardinality(page: bytes) -> dict[str, object]:
    """Samples and label values of every family of a page in the Prometheus text format.

    On the event loop, which has a turn after each ``_SLICE`` of its lines: a thread of Python would
    take turns from it all the same, and longer ones.
    """
    family = ""
    samples: dict[str, int] = {}
    labels: dict[str, dict[str, set[str]]] = {}
    for number, text in enumerate(io.BytesIO(page)):
        if number % _SLICE == 0:
            await asyncio.sleep(0)
        line = text.decode()
        if line.startswith("# TYPE "):
            family = line.split(" ")[2]
            samples.setdefault(family, 0)
        found = None if line.startswith("#") else _SAMPLE.match(line)
        if found is None:
            continue
        samples[family] = samples.get(family, 0) + 1
        for label, value in _LABEL.findall(found["labels"] or ""):
            labels.setdefault(family, {}).setdefault(label, set()).add(value)
    families = [
        {
            "name": name,
            "samples": count,
            "labels": {label: len(values) for label, values in labels.get(name, {}).items()},
        }
        for name, count in sorted(samples.items(), key=lambda item: (-item[1], item[0]))
    ]
    return {"samples": sum(samples.values()), "families": families}


def process_facts() -> dict[str, str]:
    """File name -> text: versions, and what the system says of this process. Blocks."""
    versions = (
        f"kafkalog {__version__}\nPython {platform.python_version()}\n{platform.platform()}\n"
    )
    facts = {"version.txt": versions}
    for name in _PROC_FILES:
        facts[f"proc-{name}.txt"] = Path("/proc/self", name).read_text(errors="replace")
    return facts


def bundle(name: str, parts: Mapping[str, bytes], moment_s: int) -> bytes:
    """A tar.gz with the parts as files of one directory. Blocks."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=_GZIP_LEVEL) as archive:
        for part, data in sorted(parts.items()):
            entry = tarfile.TarInfo(f"{name}/{part}")
            entry.size, entry.mtime, entry.mode = len(data), moment_s, 0o640
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
