"""Backups over HTTP: begin one; ``operations`` tells how far it is."""

from __future__ import annotations

from aiohttp import web

from kafkalog.server.api import api_of
from kafkalog.server.endpoint import Access, Action, Resource, endpoint
from kafkalog.server.error_map import ApiError
from kafkalog.server.in_flight import Body
from kafkalog.server.media_types import JSON
from kafkalog.server.routes.operations import BEGUN, begun
from kafkalog.server.schemas import BackupRequest, parse_body
from kafkalog.server.security.audit import note_subject

ROUTES = web.RouteTableDef()
_ACCESS = Access(Action.CLUSTER, Resource.CLUSTER)


@ROUTES.post("/v1/backups")
@endpoint(
    "beginBackup",
    "operation",
    _ACCESS,
    {202: BEGUN},
    body={JSON: BackupRequest},
    errors=(40002, 40401, 40909, 50010, 50011, 50302, 50303, 50701),
)
async def begin(request: web.Request) -> web.Response:
    """Begin a backup into a directory of the daemon's machine: 202 with the operation.

    Refused before anything is written: a directory that is not empty, relative, or in a log
    directory (400), a backup that runs already (409), too little room (507).
    """
    api = api_of(request)
    async with Body(request, api) as data:
        wanted = parse_body(BackupRequest, data)
    for topic in wanted.topics or (None,):
        note_subject(request, directory=wanted.directory, topic=topic)
    if wanted.topics is not None and not wanted.topics:
        raise ApiError(40002, "Name topics, or leave them out for all.")
    operation = await api.blocking(
        api.operations.begin_backup, wanted.directory, wanted.topics or (), may_link=wanted.link
    )
    return begun(operation)
