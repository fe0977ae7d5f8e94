"""Goal: `kafkalog compact` gives an operator's orders, and says what to do where it cannot.
Method: the real command against a daemon that cleans by order only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.integration.test_cli_over_http import done, run
from tests.integration.test_http_cleaner import SETTINGS, filled, log_of

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

__all__ = ["SETTINGS"]  # of the daemon fixture

ALTER = "kafkalog configs alter --topic plain --add-config cleanup.policy=compact"


def test_pause_and_resume(daemon: Daemon) -> None:
    """M17 M28: pauses add up, each is taken back by itself; a plan is made meanwhile. The whole of
    a pause can be done by hand.
    """
    filled(daemon, "held")
    assert done(run(daemon, "compact", "pause", "held")) == b"held-0 is paused(1).\n"
    paused = done(run(daemon, "compact", "pause", "held", "--partition", "0", "--output", "json"))
    assert json.loads(paused) == [{"topic": "held", "partition": 0, "state": "paused", "pauses": 2}]
    planned = done(run(daemon, "compact", "plan", "held")).decode().splitlines()[1]
    assert planned.endswith("  paused")
    assert planned.split()[4].isdigit(), "a dry run has its figures"
    refused = run(daemon, "compact", "run", "held")
    assert refused.returncode == 3
    assert b"held-0: The cleaning of held-0 is paused(2)" in refused.stderr
    assert done(run(daemon, "compact", "resume", "held")) == b"held-0 is paused(1).\n"
    assert done(run(daemon, "compact", "resume", "held")) == b"held-0 may be cleaned.\n"
    again = run(daemon, "compact", "resume", "held")
    assert again.returncode == 1
    assert b"No partition of topic held was paused by an operator." in again.stderr
    assert done(run(daemon, "compact", "abort", "held")) == b"held-0 may be cleaned.\n"
    assert log_of(daemon, "held")["pauses"] == 0


def test_a_topic_that_is_not_compacted(daemon: Daemon) -> None:
    """M28: every command that names one says how to have it compacted. The message is a remedy."""
    daemon.create_topic("plain")
    for verb in ("plan", "run", "pause", "resume", "abort", "retry"):
        refused = run(daemon, "compact", verb, "plain")
        assert refused.returncode == 1
        said = refused.stderr.decode()
        assert "Topic plain is not compacted, or none of its partitions is served." in said
        assert said.endswith(f"To compact it: {ALTER}\n")
    assert ALTER in done(run(daemon, "compact", "status", "plain")).decode()
    filled(daemon, "one", rounds=1)
    beyond = run(daemon, "compact", "run", "one", "--partition", "7")
    assert beyond.returncode == 1
    assert b"Topic one has no partition 7, or it is not served." in beyond.stderr


def test_the_last_clean_of_a_thread_says_how_it_ended(daemon: Daemon) -> None:
    """M17 M28: a clean that failed does not pass for one that was made. The moment of a failed
    clean carries its outcome and its log.
    """
    filled(daemon, "bent")
    first = daemon.log_dirs[0] / "bent-0" / f"{0:020d}.log"
    with first.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    failed = run(daemon, "compact", "run", "bent")
    assert failed.returncode == 3
    status = done(run(daemon, "compact", "status", "bent")).decode()
    (thread,) = [line for line in status.splitlines() if line.startswith("kafka-log-cleaner")]
    assert " (failed bent-0)  " in thread
    (row,) = [line for line in status.splitlines() if line.startswith("bent-0  ")]
    assert row.split()[-2:] == ["-", "CorruptBatch"]
