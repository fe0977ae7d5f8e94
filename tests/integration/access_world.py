"""What the tests of access share: files of credentials and rules, requests and commands by
principals.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kafkalog.format.disk.credentials import PasswordHash, basic_line, bearer_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.integration.daemon import Answer, Daemon

PASSWORD = "correct horse: battery"
PRINCIPALS = ("reader", "writer", "admin", "denied")
RULES = """\
allow reader read topic t-*
allow reader read group g-*
allow writer write,create topic t-*
allow admin all topic *
allow writer write sink s-*
allow admin all group *
allow admin all sink *
allow admin all cluster
deny  admin read topic t-sealed
"""


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    """Replace a file as an operator's tool does: whole."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(mode)
    os.replace(fresh, path)
    return path


def token_of(principal: str) -> str:
    return f"token-of-{principal}"


def credentials() -> str:
    """A token for each principal, and a password for alice."""
    lines = [bearer_line(each, token_of(each).encode()) for each in (*PRINCIPALS, "alice")]
    lines.append(basic_line("alice", PasswordHash.of(PASSWORD.encode(), bytes(range(16)))))
    return "\n".join(lines) + "\n"


def access_settings(root: Path, rules: str | None = RULES) -> dict[str, Any]:
    """Files under root, and the overrides (underscores for dots) that name them."""
    root.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {
        "http_auth": "basic,bearer",
        "http_auth_file": str(write(root / "credentials", credentials())),
    }
    if rules is not None:
        settings["http_acl_file"] = str(write(root / "rules", rules, 0o644))
    return settings


def by(principal: str | None) -> dict[str, str]:
    """The header of a principal's token; None: of nobody."""
    return {} if principal is None else {"Authorization": f"Bearer {token_of(principal)}"}


def ask(
    daemon: Daemon,
    principal: str | None,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    return daemon.request(method, path, body, {**by(principal), **(headers or {})})


def commands_of(daemon: Daemon, root: Path, principal: str) -> dict[str, str]:
    """The environment in which the command line is the principal."""
    return {
        "KAFKALOG_URL": f"http://127.0.0.1:{daemon.port}",
        "KAFKALOG_TOKEN_FILE": str(write(root / principal, f"{token_of(principal)}\n")),
    }
