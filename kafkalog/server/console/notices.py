"""What a form did, said once, on the page that its answer leads to.

A cookie carries it: sealed for one address with a key of this process, so that neither a link nor
another server of this host can put words on a page. It is gone with the first page that shows it.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

_COOKIE = "kafkalog_done"
_KEPT_SECONDS = 60  # where no page takes it
_KEY = secrets.token_bytes(32)


def notice_cookie(address: str, words: str) -> str:
    """The Set-Cookie of an answer that leads to an address; no words: it takes the cookie back."""
    path, _, _ = address.partition("?")
    text = words.encode().hex()
    value = f"{text}.{_seal(path, text)}" if words else ""
    kept = _KEPT_SECONDS if words else 0
    return f"{_COOKIE}={value}; Path={path}; Max-Age={kept}; HttpOnly; SameSite=Strict"


def notice_of(request: web.Request) -> str:
    """What the page says that a form did; empty: nothing, or it was sealed for another page."""
    text, _, seal = request.cookies.get(_COOKIE, "").partition(".")
    expected = _seal(request.rel_url.raw_path, text)
    is_ours = hmac.compare_digest(seal.encode(errors="replace"), expected.encode())
    return bytes.fromhex(text).decode() if is_ours else ""


def _seal(path: str, text: str) -> str:
    return hmac.digest(_KEY, f"{path} {text}".encode(errors="replace"), "sha256").hex()
