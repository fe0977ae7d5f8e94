"""The work of ``kafkalog adopt`` and ``hand-back``: access to all files, then broker's plans."""

from __future__ import annotations

import os
import pwd
import sys
from typing import TYPE_CHECKING

from kafkalog.broker.startup.adoption import plan_adoption
from kafkalog.broker.startup.hand_back import plan_hand_back
from kafkalog.broker.startup.hand_over import HandOver, HandOverPlan, Note, counted
from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.env.system_threads import SystemThreads
from kafkalog.errors import KafkalogError
from kafkalog.observe.logging import configure_logging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_ROOT = 0


def adopted(directories: Sequence[str], *, is_executed: bool) -> HandOverPlan:
    """What is found and changed, or would be."""
    return _run(directories, plan_adoption, is_executed=is_executed)


def handed_back(directories: Sequence[str], *, is_executed: bool) -> HandOverPlan:
    """What is found and changed, or would be."""
    return _run(directories, plan_hand_back, is_executed=is_executed)


def _run(
    directories: Sequence[str], plan_of: Callable[[HandOver], HandOverPlan], *, is_executed: bool
) -> HandOverPlan:
    configure_logging(sys.stderr, log_format="console", level="critical")  # the notes say it
    refused = [note for each in directories for note in access_faults(each, os.geteuid())]
    if refused:
        return HandOverPlan(refused)
    seams = (SystemFilesystem(), SystemClock(), SystemRandom(), SystemThreads(_thread_failed))
    try:
        return HandOver(directories, seams).run(plan_of, is_executed=is_executed)
    except KafkalogError as error:
        return HandOverPlan([Note("error", _subject(error), error.message)])
    except OSError as error:
        reason = error.strerror or str(error)
        return HandOverPlan([Note("error", str(error.filename), reason)])


def access_faults(directory: str, user_id: int) -> list[Note]:
    """What the user cannot read and write in a directory, or must not: root's files are root's."""
    if not os.path.isdir(directory):
        return []
    owner = os.stat(directory).st_uid
    if user_id == _ROOT and owner != _ROOT:
        message = f"it belongs to {_user(owner)}, and what root writes would be root's"
        return [Note("error", directory, f"{message}. {_access_remedy(owner)}")]
    fault = access_fault(directory, user_id)
    return [] if fault is None else [Note("error", directory, fault)]


def access_fault(directory: str, user_id: int) -> str | None:
    """Which files of an existing directory this process cannot read and write, if any."""
    every = (path for path in _everything(directory) if not _is_accessible(path))
    wrong = [path for path in every if os.path.exists(path)]  # not deleted meanwhile
    if not wrong:
        return None
    count, remedy = counted(len(wrong), "file"), _access_remedy(os.stat(directory).st_uid)
    return f"{count} cannot be read and written by {_user(user_id)}: {wrong[0]}. {remedy}"


def _access_remedy(owner: int) -> str:
    return (
        f"Run it as their owner (sudo -u {_user(owner)} kafkalog ...), who then runs the daemon "
        "as well, or give them to the daemon's user first (chown -R)"
    )


def _everything(directory: str) -> Iterator[str]:
    yield directory
    for parent, directories, files in os.walk(directory):
        yield from (os.path.join(parent, name) for name in (*directories, *files))


def _is_accessible(path: str) -> bool:
    if os.path.islink(path):
        return True  # nothing follows it
    mode = os.R_OK | os.W_OK
    return os.access(path, mode | os.X_OK if os.path.isdir(path) else mode)


def _user(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"user {user_id}"


def _subject(error: KafkalogError) -> str:
    return str(error.details.get("log_dir") or error.details.get("value") or "log directories")


def _thread_failed(name: str, error: BaseException) -> None:
    """No thread is started."""
    raise AssertionError(name) from error
