"""Goal: a defect of ours costs the request that meets it, and tells nothing of the inside.
Method: a daemon one of whose operations raises what nobody foresaw; its answer and its log.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.integration.daemon import Daemon
from tests.integration.defective_daemon import WORDS
from tests.integration.http_world import refused

if TYPE_CHECKING:
    from pathlib import Path


class DefectiveDaemon(Daemon):
    def command(self) -> list[str]:
        python, _, _, *rest = super().command()
        return [python, "-m", "tests.integration.defective_daemon", *rest]


def test_an_unforeseen_error(tmp_path: Path) -> None:
    """500/50000 with the request's id, under which the log has the traceback; the rest serves."""
    with DefectiveDaemon(tmp_path) as daemon:
        for _ in range(3):
            answer = daemon.request("GET", "/v1/tasks", None, {"X-Request-Id": "defect-1"})
            body = refused(answer, 500, 50000)
            assert body["request_id"] == "defect-1"
            said = answer.body + str(answer.headers).encode()
            assert WORDS.encode() not in said
            assert b"ZeroDivision" not in said
            assert b"kafkalog/" not in said
        daemon.produce_text("t", "on")
        assert len(daemon.fetch_all("t")) == 1
        lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines()]
        told = [line for line in lines if line["event"] == "Unhandled error in a request"]
        assert [line["request_id"] for line in told] == ["defect-1"] * 3
        assert WORDS in json.dumps(told[0])
