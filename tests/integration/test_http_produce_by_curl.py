"""Goal: what the documentation shows of curl works with curl.
Method: curl itself, chunked, from its standard input, against a real daemon.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.integration.produce_stream_world import NDJSON, lines

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")


def test_curl_tells_of_each_line(daemon: Daemon) -> None:
    """The line that the documentation shows works: a receipt before the next line is written."""
    daemon.create_topic("curled-live")
    url = f"http://127.0.0.1:{daemon.port}/v1/topics/curled-live/records"
    command = ["curl", "-NT", ".", "--no-progress-meter", "-X", "POST", url]
    command += ["-H", f"Content-Type: {NDJSON}", "-H", f"Accept: {NDJSON}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as curl:
        assert curl.stdin is not None
        assert curl.stdout is not None
        for number in range(3):
            curl.stdin.write(lines({"value": number}))
            curl.stdin.flush()
            assert json.loads(curl.stdout.readline())["offset"] == number
        curl.stdin.close()
    assert curl.returncode == 0


def test_curl_uploads_a_stream(daemon: Daemon) -> None:
    """A file of lines goes as fast as it is read: ``curl -T -``."""
    daemon.create_topic("curled")
    url = f"http://127.0.0.1:{daemon.port}/v1/topics/curled/records"
    done = subprocess.run(
        [
            *("curl", "-sS", "-X", "POST", "-T", "-", url),
            *("-H", f"Content-Type: {NDJSON}", "-H", f"Accept: {NDJSON}"),
        ],
        input=lines(*({"value": number} for number in range(1000))),
        capture_output=True,
        check=True,
    )
    assert [json.loads(line)["offset"] for line in done.stdout.splitlines()] == list(range(1000))
