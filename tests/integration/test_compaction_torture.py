"""Goal: what a consumer reads of a compacted topic is right while everything happens at once.
Method: the short form of the torture: produce, clean and retain together, then read; each codec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.format.records.record_batch import Codec
from tests.integration.daemon import Daemon
from tests.integration.torture import SETTINGS, Torture

if TYPE_CHECKING:
    from pathlib import Path

SHORT = 15_000


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_produced_while_cleaned_and_retained(codec: Codec, tmp_path: Path) -> None:
    """M17 M19: the last record of each key is left; kill -9 in between changes nothing.

    15,000 records, ten versions a key, every tenth a deletion; read, restart, read again.
    """
    with Daemon(tmp_path, log_dirs=1, environment=None, **SETTINGS) as daemon:
        torture = Torture(daemon, codec, SHORT, seed=int(codec))
        torture.produce()
        torture.check(torture.read())
        torture.clean()
        found = torture.read()
        torture.check(found)
        assert len(found) < SHORT // 3
        torture.wait_until_counted(SHORT // 3)
        torture.wait_until_retained()
        daemon.kill()
        daemon.start()
        torture.check(torture.read())
