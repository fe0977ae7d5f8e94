"""One task of a job: tried again after a fault that may pass, ended by one that stays.

| fault | passes |
|---|---|
| `OSError` of a disk or store: I/O error, lost connection, timeout, a busy store (503) | yes |
| `OSError` for which people must act: no permission, no such file, no space, a wrong name | no |
| `KafkalogError`, `ClientError` | as its ``retriable`` says: damage and lost records do not pass |
| anything else is a defect | no |

A fault that passes is tried again here (`Backoff`), unless the layer below has done that: a client
of a daemon has tried for half a minute, a reader of an object store six times. One layer owns the
tries. What still fails is tried by another process of Spark, if the job runs there (`Done.passes`).
"""

from __future__ import annotations

import errno
import traceback
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import structlog

from kafkalog.client.errors import ClientError
from kafkalog.env.backoff import Backoff
from kafkalog.env.random import SystemRandom
from kafkalog.errors import KafkalogError, LogCleaningAborted
from kafkalog.spark.logs.object_store import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

_STAYING_NUMBERS = frozenset(
    getattr(errno, name)
    for name in (
        *("EACCES", "EPERM", "EROFS", "ENOENT", "ENOTDIR", "EISDIR", "EEXIST", "ELOOP", "EXDEV"),
        *("ENOSPC", "EDQUOT", "EFBIG", "EINVAL", "ENAMETOOLONG", "EOPNOTSUPP"),
    )
)
_STAYING_KINDS = (
    PermissionError,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
)
_STAYING_WORDS = ("ACCESS_DENIED", "PERMISSION_DENIED", "UNAUTHENTICATED", "NO_SUCH_BUCKET")
"""In the texts of pyarrow's stores, whose errors have no number."""

TRIES = Backoff()
"""Of a task."""

_log = structlog.get_logger(__name__)


class PartFailed(KafkalogError):
    """One part of the data cannot be processed; the job may go on with the other parts.

    passes  whether the cause may pass
    """

    def __init__(self, message: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.retriable = passes


class Done(NamedTuple, Generic[ResultT]):
    """The result of a task, or the text of its fault.

    passes      another machine, or a later run, may succeed
    is_of_part  the fault is of this task's data alone (`PartFailed`)
    trace       of a defect
    """

    result: ResultT | None
    fault: str | None = None
    trace: str | None = None
    passes: bool = False
    is_of_part: bool = False


def passes(error: BaseException) -> bool:
    """Whether the same task may succeed later: see the module."""
    if isinstance(error, KafkalogError | ClientError):
        return error.retriable
    if not isinstance(error, OSError) or isinstance(error, _STAYING_KINDS):
        return False
    return error.errno not in _STAYING_NUMBERS and not any(
        word in str(error) for word in _STAYING_WORDS
    )


def is_tried_again(error: BaseException) -> bool:
    """Whether it passes, and nobody has tried again yet."""
    return passes(error) and not isinstance(error.__cause__ or error, ClientError | StoreFailed)


def reason_of(error: BaseException) -> str:
    """The words of an expected error: a system's with the file and without the number."""
    if isinstance(error, KafkalogError | ClientError):
        return error.message
    if not isinstance(error, OSError):
        return str(error)
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{error.filename}: {reason}"


def tried(call: Callable[[], ResultT], clock: Clock, backoff: Backoff = TRIES) -> ResultT:
    """The result of a call, made again after a fault that passes. Raises the last fault."""
    random, tries = SystemRandom(), 0
    while True:
        tries += 1
        try:
            return call()
        except (KafkalogError, OSError) as error:
            if tries == backoff.tries or not is_tried_again(error):
                raise
            pause = backoff.pause_seconds(tries, random)
            _log.warning("tried_again", reason=reason_of(error), tries=tries, pause_seconds=pause)
        clock.sleep(pause)


def attempt(
    work: Callable[[TaskT], ResultT], task: TaskT, clock: Clock, backoff: Backoff = TRIES
) -> Done[ResultT]:
    """Do a task, with `tried`; an error becomes text, which can be pickled."""
    try:
        return Done(tried(partial(work, task), clock, backoff))
    except (KafkalogError, ClientError, LogCleaningAborted, OSError) as error:
        is_of_part = isinstance(error, PartFailed)
        return Done(None, reason_of(error), passes=passes(error), is_of_part=is_of_part)
    except Exception as error:  # noqa: BLE001 - the body of a worker: the job raises it
        return Done(None, f"{type(error).__name__}: {error}", traceback.format_exc())
