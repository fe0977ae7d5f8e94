"""The command line's HTTP connection to a daemon: one keep-alive connection, errors as text."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote, urlsplit

import click

DEFAULT_URL = "http://127.0.0.1:8082"


class RequestFailed(click.ClickException):
    """The daemon refused, or cannot be reached; the message says what to do."""

    exit_code = 1

    def __init__(self, message: str, error_code: int | None = None) -> None:
        super().__init__(message)
        self.error_code = error_code


class Connection:
    """A daemon at a base URL."""

    def __init__(self, url: str, timeout_seconds: float = 60.0) -> None:
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            port = parts.port or 8082  # raises when it is no port number
        except ValueError as error:
            raise click.UsageError(
                f"The daemon's address is http://host:port, not '{url}'"
            ) from error
        has_more = parts.path not in ("", "/") or parts.query or parts.username is not None
        if parts.scheme != "http" or parts.hostname is None or has_more:
            raise click.UsageError(f"The daemon's address is http://host:port, not '{url}'")
        self.url = f"http://{parts.netloc}"
        self._http = http.client.HTTPConnection(parts.hostname, port, timeout=timeout_seconds)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> tuple[bytes, http.client.HTTPMessage]:
        """The answer's body and headers; RequestFailed with the daemon's message otherwise."""
        headers = {"Accept": accept}
        data: bytes | None = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers["Content-Type"] = content_type
        try:
            self._http.request(method, path, body=data, headers=headers)
            answer = self._http.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            reason = getattr(error, "strerror", None) or error
            raise RequestFailed(
                f"No answer from {self.url}: {reason}. Is the daemon running? (kafkalog server)"
            ) from error
        if answer.status >= 400:
            raise _failure(answer.status, content)
        return content, answer.headers

    def json(self, method: str, path: str, body: object = None, **how: str) -> Any:  # noqa: ANN401
        """The answer's JSON document, or None for an empty one."""
        content, _ = self.request(method, path, body, **how)
        return json.loads(content) if content else None

    def cluster_path(self) -> str:
        """The v3 path of the daemon's one cluster."""
        clusters = self.json("GET", "/v3/clusters")
        return f"/v3/clusters/{clusters['data'][0]['cluster_id']}"

    def topics_path(self) -> str:
        """The v3 path of its topics."""
        return f"{self.cluster_path()}/topics"


def _failure(status: int, content: bytes) -> RequestFailed:
    try:
        body = json.loads(content)
        return RequestFailed(str(body["message"]), int(body["error_code"]))
    except (ValueError, KeyError, TypeError):
        return RequestFailed(f"The daemon answered {status}.")


def segment(name: str) -> str:
    """A name as one path segment; usage error for none, which would lead to another path."""
    if not name:
        raise click.UsageError("The name of a topic is empty")
    return quote(name, safe="")


url_option = click.option(
    "--url",
    "--bootstrap-server",
    envvar="KAFKALOG_URL",
    default=DEFAULT_URL,
    show_default=True,
    help="Where the daemon listens.",
)
output_option = click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people, or one JSON document.",
)
