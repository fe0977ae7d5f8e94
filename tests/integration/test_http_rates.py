"""Goal: one principal's rate is nobody else's, and what is refused was not done.
Method: a daemon with small rates and tokens of several principals.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.integration.access_world import access_settings, ask
from tests.integration.daemon import TEXT, Daemon
from tests.integration.http_world import refused
from tests.integration.produce_stream_world import NDJSON, Duplex

if TYPE_CHECKING:
    from pathlib import Path


def test_requests_of_a_principal(tmp_path: Path) -> None:
    """The burst is served, the rest told to wait; others and probes go on."""
    settings = access_settings(tmp_path)
    with Daemon(tmp_path, **settings, http_max_requests_per_second="2") as daemon:
        answers = [ask(daemon, "reader", "GET", "/topics") for _ in range(20)]
        late = [answer for answer in answers if answer.status == 429]
        assert late
        assert answers[0].status == answers[1].status == 200
        refused(late[0], 429, 42901)
        assert late[0].headers["Retry-After"] == "1"
        assert ask(daemon, "writer", "GET", "/topics").status == 200
        for _ in range(10):
            assert ask(daemon, None, "GET", "/readyz").status == 200


def test_bytes_of_bodies_and_answers(tmp_path: Path) -> None:
    """A large body is served, and its principal waits for it; nothing refused is appended."""
    with Daemon(tmp_path, http_max_bytes_per_second="10000") as daemon:
        large = {"records": [{"value": "x" * 80_000}]}
        assert daemon.request("POST", "/topics/t", large, {"Content-Type": TEXT}).status == 200
        answer = daemon.request("POST", "/topics/t", large, {"Content-Type": TEXT})
        refused(answer, 429, 42901)
        assert 5 <= int(answer.headers["Retry-After"]) <= 8
        page = daemon.request("GET", "/metrics").body.decode()
        assert 'kafkalog_log_end_offset{partition="0",topic="t"} 1.0' in page


def test_a_stream_is_paced(tmp_path: Path) -> None:
    """A stream has its principal's rate while it lasts, and loses nothing by it."""
    line = b'{"value":"%b"}\n' % (b"x" * 1000)
    with Daemon(tmp_path, http_max_bytes_per_second="50000") as daemon:
        daemon.create_topic("paced")
        started = time.monotonic()
        answer = daemon.request(
            "POST", "/v1/topics/paced/records", line * 250, {"Content-Type": NDJSON}
        )
        assert answer.json["count"] == 250
        assert 3.5 < time.monotonic() - started < 15
        assert daemon.request("GET", "/topics").status in (200, 429)
        time.sleep(1.1)  # until the stream's last second is paid
        told = {"Content-Type": NDJSON, "Accept": NDJSON}
        with Duplex(daemon, "/v1/topics/paced/records", told) as wire:
            wire.send(line * 600)
            started = time.monotonic()
            assert daemon.stop() == 0
            assert time.monotonic() - started < 6
            assert wire.rest()[-1]["error_code"] == 50304
