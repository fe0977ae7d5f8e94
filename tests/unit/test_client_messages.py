"""Goal: addresses, names and credentials are what they seem, secrets are never shown, and a command
does not wait for what it does not use.
Method: values by hand; a fresh interpreter that lists what an import brought along.
"""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from kafkalog.client import AsyncClient, Basic, Bearer, Client, Tls, admin, path_of
from kafkalog.client.messages import Address, EmptyName, Request, context_for
from tests.integration.daemon import ROOT


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("localhost", "http://localhost:8082"),
        ("localhost:1", "http://localhost:1"),
        ("https://logs.example/", "https://logs.example:8082"),
        ("http://[::1]:5", "http://[::1]:5"),
    ],
)
def test_an_address(url: str, shown: str) -> None:
    assert str(Address.of(url)) == shown


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x", "http://", "http://x:99999", "http://[::1", "http://x/v3", "http://u:p@x",
     "http://x?a=b"],
)  # fmt: skip
def test_no_address(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Address.of(url)


def test_names_become_segments() -> None:
    """Nothing in a name leads to another path."""
    assert path_of("v1", "topics", "a/b?c#d%", 0) == "/v1/topics/a%2Fb%3Fc%23d%25/0"
    assert path_of("cleaner:run") == "/cleaner:run"
    with pytest.raises(EmptyName):
        path_of("topics", "")
    assert Request("GET", "/a", {"at": "2026-01-01T00:00:00+01:00"}).target == (
        "/a?at=2026-01-01T00%3A00%3A00%2B01%3A00"
    )


def test_secrets_are_not_shown() -> None:
    """Neither in a repr nor in the message about a token that cannot be sent."""
    basic, bearer = Basic("alice", "hush-hush"), Bearer("t0ken")
    assert basic.authorization() == "Basic YWxpY2U6aHVzaC1odXNo"
    assert bearer.authorization() == "Bearer t0ken"
    assert "hush" not in repr(basic)
    assert "t0ken" not in repr(bearer)
    for bad in ("s3cret\r\nX-Evil: 1", "", " ", "s3crét"):
        with pytest.raises(ValueError, match="printable ASCII") as refused:
            Bearer(bad)
        assert "s3cr" not in str(refused.value)
    with pytest.raises(ValueError, match="colon"):
        Basic("a:b", "c")


def test_tls_and_plain_http_do_not_mix() -> None:
    assert context_for(Address.of("http://x"), None) is None
    assert context_for(Address.of("https://x"), None) is not None
    with pytest.raises(ValueError, match="https"):
        context_for(Address.of("http://x"), Tls())
    with pytest.raises(ValueError, match="certificate"):
        context_for(Address.of("https://x"), Tls(key_file="k"))
    with pytest.raises(OSError, match="No such file"):
        Client("https://x", tls=Tls(ca_file="/no/such/file"))


def test_a_method_is_its_function() -> None:
    """Docstring and parameters are those of the steps, for both clients."""
    for kind in (Client, AsyncClient):
        method = kind.create_topic
        assert method.__doc__ == admin.create_topic.__doc__
        assert "partitions" in inspect.signature(method).parameters
    with Client() as client:
        assert client.create_topic.__doc__ == admin.create_topic.__doc__


def test_what_an_import_brings() -> None:
    """`kafkalog topics list` starts in 0.3 s: no kernel, no numpy, no aiohttp, no pydantic."""
    heavy = ("numba", "numpy", "aiohttp", "pydantic", "structlog", "cramjam", "crc32c", "asyncio")
    code = (
        "import sys, kafkalog.cli.topics, kafkalog.cli.consume\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
