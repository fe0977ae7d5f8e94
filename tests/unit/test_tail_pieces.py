"""Goal: a piece that is shared is one that the log would give now, and few of them are kept.
Method: a log on the simulated disk that is cut at its start, reloaded under its name, or not.
"""

from __future__ import annotations

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.server.fetch.tail_cache import TailPiece, TailPieces
from tests.sim.sim_manager import DIRS, SimManager, batch_of

PIECE = TailPiece(b"x", 1, 3)


def test_a_piece_is_that_of_the_log_as_it_is() -> None:
    """M09 M14: not behind a deletion of records, nor of another log of that name."""
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start()
    sim.operations.topics.create("t", 1)
    sim.produce("t", batch_of("a", "b", "c"))
    log = sim.operations.partition_log("t", 0)
    pieces = TailPieces()
    pieces.keep("key", log, log.local.generation, PIECE)
    assert pieces.find("key", log, 2) == PIECE
    assert pieces.find("other", log, 2) is None
    log.local.swap_count += 1
    assert pieces.find("key", log, 2) is None
    pieces.keep("key", log, log.local.generation, PIECE)
    log.delete_records(3)
    assert pieces.find("key", log, 2) is None
    sim.operations.topics.delete("t")
    sim.operations.topics.create("t", 1)
    again = sim.operations.partition_log("t", 0)
    assert pieces.find("key", again, 3) is None


def test_few_are_kept() -> None:
    """The oldest goes first; one that is kept again is the newest."""
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start()
    sim.operations.topics.create("t", 1)
    log = sim.operations.partition_log("t", 0)
    pieces = TailPieces()
    for number in range(33):
        pieces.keep(number, log, log.local.generation, PIECE)
    found = [number for number in range(33) if pieces.find(number, log, 0) is not None]
    assert found == list(range(1, 33))
    pieces.keep(1, log, log.local.generation, PIECE)
    pieces.keep(99, log, log.local.generation, PIECE)
    assert pieces.find(1, log, 0) is not None
    assert pieces.find(2, log, 0) is None


def test_their_bytes_are_bounded() -> None:
    """4 MiB together; one that is larger is kept alone, because it saves the most."""
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start()
    sim.operations.topics.create("t", 1)
    log = sim.operations.partition_log("t", 0)
    pieces = TailPieces()

    def kept_after(*sizes: int) -> list[int]:
        for number, size in enumerate(sizes):
            piece = TailPiece(bytes(size), 1, 3)
            pieces.keep(number, log, log.local.generation, piece)
        return [n for n in range(len(sizes)) if pieces.find(n, log, 0) is not None]

    assert kept_after(1 << 20, 1 << 20, 1 << 20, 1 << 20) == [0, 1, 2, 3]
    assert kept_after(1 << 20, 1 << 20, 3 << 20) == [1, 2]
    assert kept_after(1 << 20, 8 << 20) == [1]
    assert kept_after(1, 1) == [0, 1]
