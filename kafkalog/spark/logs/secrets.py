"""Secrets by reference: what travels with a task says where a secret is, never what it is.

Plans, closures and event logs of Spark are stored and shown. Credentials of a daemon are therefore
read where a request is made: from a file or an environment variable, which each machine has under
the same name (``spark.executorEnv.NAME``, a secret of Kubernetes). A value that travels has
``by_reference``: the same without secrets, or SecretByValue with what to do.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from kafkalog.client.messages import Basic, Bearer
from kafkalog.env.process_facts import environment_variable
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

CallT = TypeVar("CallT", bound="Callable[..., Any]")


class SecretByValue(KafkalogError):
    """A secret would stand in Spark's plan; the message says how to give it by reference."""


class SecretMissing(KafkalogError):
    """A secret is not where it should be on this machine."""


@runtime_checkable
class Referable(Protocol):
    """A value that may have secrets."""

    def by_reference(self) -> Self:
        """The same without secrets, which are looked up where it is used. SecretByValue."""


@dataclass(frozen=True, slots=True)
class CredentialsAt:
    """Credentials of a daemon in the first line of a file, or in an environment variable.

    user  of a password; None: the secret is a token
    """

    user: str | None = None
    file: str | None = None
    variable: str | None = None

    def read(self) -> Basic | Bearer:
        """Raises SecretMissing; ValueError for a secret that cannot be one, without its text."""
        secret = self._from_variable() if self.file is None else self._from_file(self.file)
        return Bearer(secret) if self.user is None else Basic(self.user, secret)

    def _from_variable(self) -> str:
        assert self.variable is not None, "a file or a variable"
        secret = environment_variable(self.variable)
        if not secret:
            raise SecretMissing(
                f"The environment variable {self.variable} is not set on this machine: set it for "
                f"the driver, and with spark.executorEnv.{self.variable} for the executors"
            )
        return secret

    def _from_file(self, file: str) -> str:
        try:
            lines = SystemFilesystem().read_file(file).decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SecretMissing(
                f"{file} is not a readable text file on this machine: put the secret there on "
                "each machine, or give an environment variable"
            ) from error
        if not lines or not lines[0]:
            raise SecretMissing(f"{file} has no secret in its first line on this machine")
        return lines[0]


def without_secrets(work: CallT) -> CallT:
    """The work of a job for other machines: the arguments of a partial by reference."""
    if not isinstance(work, functools.partial):
        return work
    named = {
        name: value.by_reference() if isinstance(value, Referable) else value
        for name, value in work.keywords.items()
    }
    return functools.partial(work.func, *work.args, **named)  # type: ignore[return-value]  # as it
