"""What Spark's Kafka source found on logs of a real Kafka, kept with these logs in `frozen/`.

`freeze` makes it, `test_parity` holds our source against it wherever there is Java.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.spark.parity import Found

DIRECTORY = Path(__file__).resolve().parent / "frozen"
_LOGS = DIRECTORY / "logs.tar.gz"
_EXPECTED = DIRECTORY / "expected.json"
_CHECKPOINT = DIRECTORY / "checkpoint"


def expected() -> Found:
    found: Found = json.loads(_EXPECTED.read_text(encoding="utf-8"))
    return found


def unpack_logs(directory: Path) -> Path:
    with tarfile.open(_LOGS) as archive:
        # Python before 3.11.4 has no filters; the archive is our own.
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(directory)
    return directory / "logs"


def copy_checkpoint(directory: Path) -> Path:
    """Of stream "limited", which Kafka's source left in the middle of batch BREAKS_IN."""
    return shutil.copytree(_CHECKPOINT, directory / "checkpoint")


def keep(logs: Path, found: Found, checkpoint: Path) -> None:
    """Take the place of what was frozen."""
    shutil.rmtree(DIRECTORY / "checkpoint", ignore_errors=True)
    DIRECTORY.mkdir(exist_ok=True)
    with tarfile.open(_LOGS, "w:gz") as archive:
        archive.add(logs, "logs")
    text = json.dumps(found, indent=1, sort_keys=True)
    _EXPECTED.write_text(text + "\n", encoding="utf-8")
    # Without Hadoop's hidden checksums: the files stay readable without, and may be edited.
    shutil.copytree(checkpoint, _CHECKPOINT, ignore=shutil.ignore_patterns(".*"))
