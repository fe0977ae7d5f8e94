"""Audit lines: one for each request that was denied, or that administers or destroys something.

The logger ``audit`` writes them whatever ``log.level`` is: principal, address, operation, subject
and result. The operation is that of the endpoint spec; the subject is in the path, or a handler
notes it from the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog
from aiohttp import web

from kafkalog.observe.logging import AUDIT
from kafkalog.server.protocol.endpoint import ADMINISTRATIVE
from kafkalog.server.protocol.errors import error_of
from kafkalog.server.protocol.replies import PRINCIPAL, REQUEST_ID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.errors import KafkalogError
    from kafkalog.server.protocol.endpoint import Endpoint

    Subject = dict[str, object]

_log = structlog.get_logger(AUDIT)
_DENIALS = (401, 403)
_TEXT_CHARS = 300
_MAX_SUBJECTS = 20
_SUBJECTS: web.RequestKey[list[Subject]] = web.RequestKey("audit_subjects", list)
# Of a path, in the order of the line; a partition is a number in every subject.
_PATH_NAMES = ("topic", "partition", "group", "broker", "config")
# Fields of an answer's entry that an audit line has.
_ENTRY_NAMES = frozenset(
    (
        *("topic", "partition", "offset", "old_offset", "new_offset", "target", "outcome"),
        *("log_start_offset", "bytes", "error_code", "error"),
    )
)


def note_subject(request: web.Request, **fields: object) -> Subject:
    """Say what a request is about, beyond the names in its path: its audit line has it.

    Before it is done, so that the line of a refusal has it; what comes of it the caller adds to the
    returned subject. Names and numbers alone: no values of configs, keys or records.
    """
    subject = {**_named_by_path(request), **fields}
    request.setdefault(_SUBJECTS, []).append(subject)
    return subject


def note_failure(subject: Subject, error: KafkalogError) -> None:
    """Note that it failed for this subject, independently of the answer's status."""
    said = error_of(error)
    subject.update(error_code=said.error_code, error=said.message)


def note_entries(request: web.Request, entries: Iterable[object], **common: object) -> None:
    """The subjects are those of an answer's entries, with their ends, in the place of others.

    An entry is a struct of the answer, or a partition.

    Any thread: they are there all at once, for the line of a 202 may be written meanwhile.
    """
    subjects: list[Subject] = []
    for entry in map(msgspec.to_builtins, entries):
        fields = {name: value for name, value in entry.items() if name in _ENTRY_NAMES}
        if "message" in entry:  # of an entry that carries a whole error
            fields["error"] = entry["message"]
        subjects.append({**_named_by_path(request), **fields, **common})
    request[_SUBJECTS] = subjects


def audit(
    request: web.Request, spec: Endpoint | None, status: int, error: Exception | None
) -> None:
    """Write the line of an answered request, if it gets one; its length is bounded.

    No credentials and no bodies are in it. Subjects that failed come first: a count replaces the
    rest. Handlers that noted a subject are on record whatever right their route asks for.
    """
    access = spec.right if spec is not None else None
    is_denied = status in _DENIALS
    is_administrative = access is not None and access.action in ADMINISTRATIVE
    if not (is_denied or is_administrative or _SUBJECTS in request):
        return
    subjects = request.get(_SUBJECTS) or [_named_by_path(request)]
    subjects = [subject for subject in subjects if subject]
    failed = [subject for subject in subjects if "error_code" in subject]
    listed = failed + [subject for subject in subjects if "error_code" not in subject]
    reason = getattr(error, "message", "") if error is not None else ""
    if failed and error is None:
        reason = f"{len(failed)} of {len(subjects)} failed"
    _log.info(
        "Denied" if is_denied else "Administered",
        principal=request.get(PRINCIPAL, ""),
        address=request.remote or "",
        operation=spec.operation_id if spec is not None else "",
        method=request.method,
        path=request.path[:_TEXT_CHARS],
        subjects=[_bounded(subject) for subject in listed[:_MAX_SUBJECTS]],
        subject_count=len(subjects),
        status=status,
        reason=reason[:_TEXT_CHARS],
        request_id=request[REQUEST_ID],
    )


def _named_by_path(request: web.Request) -> Subject:
    found: Subject = {}
    for name in _PATH_NAMES:
        if (text := request.match_info.get(name)) is not None:
            is_number = name == "partition" and text.isascii() and text.isdigit()
            found[name] = int(text[:_TEXT_CHARS]) if is_number else text
    return found


def _bounded(subject: Subject) -> Subject:
    """Without None, and with texts cut: a name in a body may have any length."""
    return {
        name: value[:_TEXT_CHARS] if isinstance(value, str) else value
        for name, value in subject.items()
        if value is not None
    }
