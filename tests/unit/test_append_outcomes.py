"""Goal: an append answered by a number that promises "nothing was appended" has appended nothing.
Method: every disk call of an append fails in turn, once or for good; then a restart looks for it.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.values import Acks
from kafkalog.errors import AppendOutcomeUnknown, DiskFull, KafkalogError, LogDirOffline
from kafkalog.log.log_config import LogConfig
from kafkalog.server.protocol.errors import entry_of
from tests.sim.sim_faults import Effect, Fault
from tests.sim.sim_manager import SimManager, batch_of, records_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.sim.sim_filesystem import SimFilesystem

CONFIG = BrokerConfig(log_dirs=("/data/a",))
DEFAULTS = LogConfig(segment_index_bytes=96, index_interval_bytes=0)
NOTHING_APPENDED = (429, 503, 507)
FOR_GOOD = 10**9
ALONE = ((Acks.ALL,),)
TOGETHER = ((Acks.ALL, Acks.LEADER, Acks.ALL),)
ONE_BY_ONE = ((Acks.ALL,), (Acks.LEADER,), (Acks.ALL,))
ROLLS = {"internal.segment.bytes": "100"}  # at every append
SYNCS = {"flush.messages": "1"}  # before every answer

Turns = tuple[tuple[Acks, ...], ...]


class Run:
    """Appends in turns (those of one turn wait together) after some that were acknowledged."""

    def __init__(self, fault: Fault, turns: Turns, overrides: Mapping[str, str]) -> None:
        self.sim = SimManager(config=CONFIG, topic_defaults=DEFAULTS).start()
        self.sim.operations.topics.create("t", 1, overrides)
        for number in range(3):
            assert self.sim.produce("t", batch_of(f"old-{number}")).error is None
        assert self.sim.delete_records("t", 1).error is None  # the next flush writes the epochs
        self.log = self.sim.operations.partition_log("t", 0)
        self.sim.disk.faults.add(fault)
        self.errors: dict[bytes, KafkalogError | None] = {}
        for turn in turns:
            for acks in turn:
                self._submit(acks)
            self.sim.threads.run_until_idle()

    def _submit(self, acks: Acks) -> None:
        value = b"new-%d" % len(self.errors)
        self._note(value, None)
        try:
            self.sim.operations.submit_produce(
                self.log,
                records_of(batch_of(value.decode()), self.log),
                acks,
                on_done=lambda command: self._note(value, command.error),
            )
        except LogDirOffline as error:
            self._note(value, error)

    def _note(self, value: bytes, error: KafkalogError | None) -> None:
        self.errors[value] = error

    def stored(self) -> bytes:
        """Bytes of the log after kill -9 and a restart on a healthy disk."""
        disk = self.sim.kill()
        again = SimManager(disk, config=CONFIG, topic_defaults=DEFAULTS).start()
        assert again.operations.partition_log("t", 0).log_end_offset >= 3
        return log_bytes(disk)


def log_bytes(disk: SimFilesystem) -> bytes:
    """All segments of the partition."""
    names = sorted(name for name in disk.list_dir("/data/a/t-0") if name.endswith(".log"))
    return b"".join(disk.read_file(f"/data/a/t-0/{name}") for name in names)


@pytest.mark.parametrize("times", [1, FOR_GOOD])
@pytest.mark.parametrize(
    ("number", "effect"),
    [
        (errno.ENOSPC, Effect.SHORT_WRITE),
        (errno.EMFILE, Effect.RAISE),
        (errno.EIO, Effect.RAISE),
    ],
)
@pytest.mark.parametrize(
    ("overrides", "turns"),
    [({}, ONE_BY_ONE), ({}, TOGETHER), (ROLLS, ONE_BY_ONE), (ROLLS, TOGETHER), (SYNCS, ONE_BY_ONE)],
)
def test_no_refusal_leaves_a_record(
    overrides: Mapping[str, str], turns: Turns, number: int, effect: Effect, times: int
) -> None:
    """M15: writes, index entries, rolls, cuts, epochs and syncs."""
    nth = 0
    while True:
        nth += 1
        fault = Fault(effect, number, path_contains="/data/a", nth=nth, times=times)
        run = Run(fault, turns, overrides)
        struck = fault.seen >= nth
        stored = run.stored()
        for value, error in run.errors.items():
            if error is None:
                assert value in stored, (nth, value)
            elif entry_of(error).status in NOTHING_APPENDED:
                assert value not in stored, (nth, value, error)
            else:
                assert isinstance(error, AppendOutcomeUnknown)
        if not struck:
            assert not any(run.errors.values())
            assert nth > 2
            return


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("turns", [ALONE, TOGETHER])
@pytest.mark.parametrize("kind", ["datasync", "sync_dir"])
def test_a_failed_sync_names_the_offsets(kind: str, turns: Turns, number: int) -> None:
    """M15: 50003, retriable, and where the records were written."""
    run = Run(Fault(error=number, kinds=frozenset({kind})), turns, ROLLS)
    failed = [error for error in run.errors.values() if error is not None]
    assert failed
    for error in failed:
        assert isinstance(error, AppendOutcomeUnknown)
        assert (entry_of(error).error_code, error.retriable) == (50003, True)
    first = failed[0]
    assert isinstance(first, AppendOutcomeUnknown)
    assert (first.details["first_offset"], first.details["last_offset"]) == (3, 3)
    assert "written at offset 3" in first.message


@pytest.mark.parametrize(
    ("number", "kind", "offline_dirs"),
    [
        (errno.ENOMEM, "datasync", 1),
        (errno.ENOSPC, "datasync", 1),
        (errno.EIO, "sync_dir", 1),
        (errno.EMFILE, "sync_dir", 0),
        (errno.ENFILE, "sync_dir", 0),
    ],
)
def test_only_an_open_without_descriptor_lets_the_directory_live(
    number: int, kind: str, offline_dirs: int
) -> None:
    """M15: a sync that ran short of memory may have dropped pages, and would succeed next time."""
    fault = Fault(error=number, kinds=frozenset({kind}))
    run = Run(fault, ALONE, ROLLS)
    assert isinstance(run.errors[b"new-0"], AppendOutcomeUnknown)
    assert run.sim.operations.readiness().offline_dirs == offline_dirs


def test_what_could_not_be_cut_back_is_no_refusal() -> None:
    """M15: whole in the file, its index entry failed and the cut as well: a restart finds it."""
    run = Run(
        Fault(error=errno.ENOSPC, kinds=frozenset({"write", "truncate"}), nth=2, times=FOR_GOOD),
        ALONE,
        {},
    )
    error = run.errors[b"new-0"]
    assert isinstance(error, AppendOutcomeUnknown)
    assert "first_offset" not in error.details
    later = run.sim.produce("t", batch_of("later"), Acks.LEADER).error
    assert isinstance(later, DiskFull | LogDirOffline)
    assert b"new-0" in run.stored()
