"""One daemon a test module, which must end without an unforeseen error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def daemon(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon]:
    """A ready daemon; a module's SETTINGS (underscores for dots) are its overrides."""
    settings = getattr(request.module, "SETTINGS", {})
    one = Daemon(tmp_path_factory.mktemp("daemon"), **settings)
    one.start()
    try:
        yield one
        assert one.request("GET", "/readyz").status == 200
    finally:
        assert one.stop() == 0
    assert "Unhandled" not in one.log_path.read_text(), one.log_tail()
