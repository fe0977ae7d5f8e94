"""The gate authenticates every request before its handler; ``Filters`` are all checks before it.

After the gate a request has the ``Api`` of its principal (``api_of``), whose operations check every
call. Where the path names the topic or group, the right of the endpoint spec is checked here too,
before the body is read. An application with a gate has no other ``Api``: a route that the gate lets
through by mistake has one without rights. Filters are the same at every port; one that the
configuration does not need is None and costs nothing. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalog.broker.access_rules import (
    ALL_ALLOWED,
    CLUSTER_NAME,
    AccessRules,
    Action,
    Resource,
    parse_access_rules,
)
from kafkalog.broker.authorized import authorized
from kafkalog.errors import NAMES_PATHS
from kafkalog.format.disk.credentials import Credentials, decode_credentials
from kafkalog.server.api import API_VIEW
from kafkalog.server.protocol.endpoint import METRICS_PATH, Access, endpoint_of
from kafkalog.server.protocol.replies import PRINCIPAL
from kafkalog.server.security.authenticators import JWT, NONE, Authenticators, FailedTries, Known
from kafkalog.server.security.cors import Cors
from kafkalog.server.security.hosts import Hosts
from kafkalog.server.security.rate_limits import RateLimits
from kafkalog.server.security.tls import watched_contexts
from kafkalog.server.security.watched_files import WatchedFiles, read_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from kafkalog.broker.access_rules import Rights
    from kafkalog.format.disk.credentials import PasswordHash
    from kafkalog.server.api import Api
    from kafkalog.server.protocol.endpoint import Endpoint
    from kafkalog.server.security.jwt import TokenKeys
    from kafkalog.settings import ServerConfig


T = TypeVar("T")

_SCRAPER = parse_access_rules("allow * describe cluster")
_NOBODY = AccessRules()
# Principals whose view is cached; beyond, all are dropped.
_VIEWS = 1024


class AccessFiles:
    """The files of access, read before anything else is begun."""

    def __init__(self, config: ServerConfig) -> None:
        """InvalidConfig names setting, file and line. Blocks on the disk."""
        self.tls = watched_contexts(config)
        self.credentials = _watched(
            "http.auth.file", config.http_auth_file, decode_credentials, is_secret=True
        )
        self.rules = _watched(
            "http.acl.file", config.http_acl_file, parse_access_rules, is_secret=False
        )
        self.token_keys = _watched_token_keys(config)

    @property
    def is_any(self) -> bool:
        """Whether there are any."""
        return bool(self._all())

    def refresh(self, observe_reload: Callable[[str, bool], None]) -> dict[str, str]:
        """Read again what changed; ``observe_reload`` gets the setting and if it was accepted.

        Returns what became of each setting's files: read, refused (the old content stays, and the
        log says why when it is new), or unchanged.
        """
        outcomes = {}
        for files in self._all():
            is_taken = files.refresh()
            if is_taken is not None:
                observe_reload(files.key, is_taken)
            is_refused = is_taken is False or files.is_refused
            outcomes[files.key] = "read" if is_taken else "refused" if is_refused else "unchanged"
        return outcomes

    def _all(self) -> list[WatchedFiles[Any]]:
        """Those that there are."""
        every = (self.tls, self.credentials, self.rules, self.token_keys)
        return [files for files in every if files is not None]


def _watched(
    key: str, path: str | None, parse: Callable[[str], T], *, is_secret: bool
) -> WatchedFiles[T] | None:
    if path is None:
        return None
    return WatchedFiles(key, (path,), lambda: read_file(key, path, parse, is_secret=is_secret))


def _watched_token_keys(config: ServerConfig) -> WatchedFiles[TokenKeys] | None:
    """The keys of JWTs. Its libraries are loaded where they are needed: 15 MB, 80 ms."""
    if JWT not in (config.http_auth or ()):
        return None
    from kafkalog.server.security.jwt import TokenRules, decode_jwks

    rules = TokenRules.of(config)
    return _watched(
        "http.jwt.jwks.file",
        config.http_jwt_jwks_file,
        lambda text: decode_jwks(text, rules),
        is_secret=False,
    )


class Gate:
    """See the module."""

    def __init__(self, api: Api, files: AccessFiles) -> None:
        config = api.config
        # constant after construction
        self._api = api
        self._files = files
        self.authenticators = Authenticators(
            config.http_auth or (NONE,),
            self._known,
            FailedTries(config.http_auth_tries_per_minute),
            self._matches,
            config.http_mtls_principal,
        )
        self._is_metrics_open = config.http_metrics_open
        self.closed_api = self._view_of(_NOBODY.rights_of(""))
        self._scraper_api = self._view_of(_SCRAPER.rights_of(""))
        # owned by the event loop
        self._known_now = Known(_NO_CREDENTIALS, None)
        self._views: dict[str, tuple[Rights, Api]] = {}
        self._views_from: AccessRules | None = None

    @staticmethod
    def is_needed(config: ServerConfig) -> bool:
        """Whether anybody is asked anything; else there is no gate, and it costs nothing."""
        return config.http_acl_file is not None or config.http_auth not in (None, (NONE,))

    async def admit(self, request: web.Request) -> None:
        """Give the request its ``Api``; ApiError 40101 and 42901, AccessDenied."""
        NAMES_PATHS.set(False)  # for this request: its task has a context of its own
        spec = endpoint_of(request.match_info.handler)
        if spec is not None and spec.access is Access.OPEN:
            request[API_VIEW] = self.closed_api  # open operations are open there too
            return
        if self._is_metrics_open and request.path == METRICS_PATH:
            request[API_VIEW] = self._scraper_api
            return
        principal = await self.authenticators.principal_of(request, time.monotonic())
        request[PRINCIPAL] = principal
        rights, request[API_VIEW] = self._view(principal)
        if rights.allow(Action.DESCRIBE, Resource.CLUSTER):
            NAMES_PATHS.set(True)
        if spec is not None:
            _require(spec, request, rights)

    def remembered_view(
        self, mark: bytes | None, action: Action, topic: str
    ) -> tuple[Api, bool] | None:
        """What a request sees with the Authorization header of this mark, and if it may see paths.

        None where ``admit`` has to verify the header, or would refuse the request.
        """
        principal = self.authenticators.remembered(mark)
        if principal is None:
            return None
        rights, view = self._view(principal)
        if not rights.allow(action, Resource.TOPIC, topic):
            return None
        return view, rights.allow(Action.DESCRIBE, Resource.CLUSTER)

    def _view(self, principal: str) -> tuple[Rights, Api]:
        """What the principal may do and sees by the rules in force."""
        rules = self._files.rules.current if self._files.rules is not None else ALL_ALLOWED
        if rules is not self._views_from or len(self._views) >= _VIEWS:
            self._views.clear()
            self._views_from = rules
        view = self._views.get(principal)
        if view is None:
            rights = rules.rights_of(principal)
            view = self._views[principal] = (rights, self._view_of(rights))
        return view

    def _view_of(self, rights: Rights) -> Api:
        return replace(self._api, operations=authorized(self._api.operations, rights))

    def _known(self) -> Known:
        """What the files say now; the same object as long as none was read again."""
        files, known = self._files, self._known_now
        credentials = _current(files.credentials) or _NO_CREDENTIALS
        token_keys = _current(files.token_keys)
        if credentials is not known.credentials or token_keys is not known.token_keys:
            self._known_now = Known(credentials, token_keys)
        return self._known_now

    async def _matches(self, kept: PasswordHash, password: bytes) -> bool:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._api.pools.access, functools.partial(kept.matches, password)
        )


_NO_CREDENTIALS = Credentials()


def _current(files: WatchedFiles[T] | None) -> T | None:
    return None if files is None else files.current


def _require(spec: Endpoint, request: web.Request, rights: Rights) -> None:
    """Check the right of the spec where the path names its resource."""
    access = spec.right
    if access is None:
        return
    if access.resource is Resource.CLUSTER:
        rights.require(access.action, access.resource, CLUSTER_NAME)
        return
    name = request.match_info.get(access.resource.value)
    if name is not None:
        rights.require(access.action, access.resource, name)


@dataclass(frozen=True, slots=True)
class Filters:
    """The checks before a handler; None: the configuration does not need it."""

    gate: Gate | None
    cors: Cors | None
    rates: RateLimits | None
    hosts: Hosts

    @property
    def are_few(self) -> bool:
        """Whether only the host of a request, and who sends it, are looked at."""
        return self.cors is None and self.rates is None

    @classmethod
    def of(cls, api: Api, files: AccessFiles) -> Filters:
        """Those that the configuration needs."""
        config = api.config
        gate = Gate(api, files) if Gate.is_needed(config) else None
        return cls(gate, Cors.of(config), RateLimits.of(config), Hosts.of(config))
