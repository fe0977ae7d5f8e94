"""enumerate_crashes: cut the power before, after and within every change that a workload makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tests.sim.sim_crash import ALL_MODES, CrashMode
from tests.sim.sim_faults import SimulatedCrash
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.simulation_memory import ending_simulations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

State = TypeVar("State")

_SEEDED = frozenset(
    {CrashMode.PREFIX, CrashMode.SUBSET, CrashMode.TORN_SECTOR, CrashMode.TORN_BYTE}
)


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Where a workload was stopped. mode None: the process was killed, the page cache lives."""

    call: int
    is_partial: bool
    mode: CrashMode | None
    seed: int


def enumerate_crashes(
    new_state: Callable[[], State],
    workload: Callable[[SimFilesystem, State], None],
    check: Callable[[SimFilesystem, State, CrashPoint], None],
    *,
    new_disk: Callable[[], SimFilesystem] = SimFilesystem,
    modes: Sequence[CrashMode] = ALL_MODES,
    seeds: int = 3,
    stride: int = 1,
    first: int = 0,
) -> int:
    """Check the disk after a crash at every mutating call; how many states were checked.

    The workload notes in its state what was acknowledged, as it goes; it must do the same calls
    each time. It is run once to count its N calls, then up to call n for each n in ``first``..N
    (every ``stride``-th), and once more within each call that writes. Each stop is checked after a
    power cut in every mode (modes that choose at random: ``seeds`` seeds) and after a kill.
    ``check`` gets a disk of its own. A failing check is raised with the crash point as a note.
    """
    whole = new_disk()
    before = len(whole.operations)
    workload(whole, new_state())
    calls = [operation.kind for operation in whole.operations[before:]]
    checked = 0
    for call in range(first, len(calls) + 1, stride):
        is_write = call < len(calls) and calls[call] == "write"
        for is_partial in (False, True) if is_write else (False,):
            with ending_simulations():
                disk, state = new_disk(), new_state()
                disk.stop_at(before + call, is_partial=is_partial)
                try:
                    workload(disk, state)
                except SimulatedCrash:
                    pass
                else:
                    assert call == len(calls), "the workload does other calls than the first time"
                for mode in modes:
                    for seed in range(seeds if mode in _SEEDED else 1):
                        point = CrashPoint(call, is_partial, mode, seed)
                        with ending_simulations():
                            _check(check, disk.crash(mode, seed), state, point)
                        checked += 1
                _check(check, disk.kill(), state, CrashPoint(call, is_partial, None, 0))
                checked += 1
    return checked


def _check(
    check: Callable[[SimFilesystem, State, CrashPoint], None],
    disk: SimFilesystem,
    state: State,
    point: CrashPoint,
) -> None:
    try:
        check(disk, state, point)
    except Exception as error:
        error.add_note(f"at {point}")
        raise
