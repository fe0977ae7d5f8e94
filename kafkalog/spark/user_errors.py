"""Errors as a user of Spark sees them: one line that names cause and remedy, without stacks.

Spark's Python workers send an error to the JVM as text, with the worker's stack, and end. Where the
error is one that a user can mend, the stack only hides the sentence. PySpark leaves it out when an
environment variable says so (setting ``spark.sql.execution.pyspark.udf.hideTraceback.enabled``),
which it reads after the error: it is set then, in a worker that ends with this error. Stacks of
other errors are ours to mend, and stay. With setting ``...tracebackWithLocals.enabled`` all do.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkalog.client import errors as of_daemon
from kafkalog.env.process_facts import environment_variable, set_environment_variable
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.client import ClientError


class SourceFailed(KafkalogError):
    """A daemon or a disk did not give what was asked for; the message says what to do."""


_ADVICE: tuple[tuple[tuple[type[ClientError], ...], str], ...] = (
    (
        (of_daemon.NotAuthenticated,),
        "Give credentials: option tokenFile or tokenEnv, or user with passwordFile or passwordEnv",
    ),
    (
        (of_daemon.AccessDenied,),
        "Ask an operator for access, or give the credentials of a principal that has it",
    ),
    (
        (of_daemon.ConnectFailed, of_daemon.OutcomeUnknown, of_daemon.Unavailable),
        "Check option url, and that the daemon runs and can be reached from this machine",
    ),
    (
        (of_daemon.BadAnswer,),
        "Check that option url is that of a daemon, and not of a proxy or another service",
    ),
)


@contextmanager
def for_users() -> Iterator[None]:
    """What Spark calls, by a ``with`` or as a decorator. Raises KafkalogError, and other errors."""
    try:
        yield
    except KafkalogError:
        _hide_stacks()
        raise
    except of_daemon.ClientError as error:
        advice = next((text for kinds, text in _ADVICE if isinstance(error, kinds)), "")
        _hide_stacks()
        raise SourceFailed(f"{error.message.rstrip('.')}. {advice}".rstrip()) from error
    except PermissionError as error:
        _hide_stacks()
        raise SourceFailed(
            f"{error.filename} cannot be read by the user of this process: give it read access "
            "to the log directory, or read from the daemon with option url"
        ) from error


def _hide_stacks() -> None:
    is_worker = environment_variable("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER"
    if is_worker and environment_variable("SPARK_TRACEBACK_WITH_LOCALS") is None:
        set_environment_variable("SPARK_HIDE_TRACEBACK", "1")
