"""Goal: configs of topics and broker change over HTTP at once and for good; topics grow.
Method: requests to a real daemon, v3 shapes; restarts, also after losing a directory's registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import Daemon
from tests.integration.http_world import check_sealed, refused

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {"log_retention_hours": "24", "log_segment_bytes": "2097152"}


def configs(daemon: Daemon, topic: str) -> str:
    return f"{daemon.cluster()}/topics/{topic}/configs"


def overrides(daemon: Daemon, topic: str) -> Any:
    return daemon.request("GET", f"{daemon.cluster()}/topics/{topic}").json["config_overrides"]


def done(answer: Any) -> None:
    assert (answer.status, answer.body) == (204, b""), answer.body
    check_sealed(answer)


def test_alter_sets_and_deletes_all_or_nothing(daemon: Daemon) -> None:
    """M13: one step that is refused refuses the others; a dry run changes nothing."""
    daemon.create_topic("several", 1, flush_ms="9")
    alter = f"{configs(daemon, 'several')}:alter"
    steps = [
        {"name": "retention.ms", "value": "5"},
        {"name": "retention.bytes", "value": "7", "operation": "SET"},
        {"name": "flush.ms", "operation": "DELETE"},
    ]
    done(daemon.request("POST", alter, {"data": steps, "validate_only": True}))
    assert overrides(daemon, "several") == {"flush.ms": "9"}
    for wrong in (
        {"name": "segment.bytes", "value": "13"},
        {"name": "no.such", "value": "13"},
        {"name": "no.such", "operation": "DELETE"},
        {"name": "flush.messages", "value": None},
        {"name": "retention.ms", "value": "6"},
    ):
        refused(daemon.request("POST", alter, {"data": [*steps, wrong]}), 400, 40002)
    assert overrides(daemon, "several") == {"flush.ms": "9"}
    done(daemon.request("POST", alter, {"data": steps}))
    assert overrides(daemon, "several") == {"retention.ms": "5", "retention.bytes": "7"}
    unknown = {"name": "flush.ms", "value": "1", "operation": "APPEND"}
    shapes: list[object] = [{}, [{"value": ""}], [unknown]]
    for data in shapes:
        refused(daemon.request("POST", alter, {"data": data}), 400, 400)


def test_many_topics_are_altered_at_once(daemon: Daemon) -> None:
    """As Confluent's API: each topic all or nothing; what does not exist refuses all of them."""
    for name in ("many-a", "many-b"):
        daemon.create_topic(name)
    path = f"{configs(daemon, '-')}:alter"

    def of(topic: str, name: str, value: str | None, **more: str) -> dict[str, object]:
        return {"topic_name": topic, "configs": [{"name": name, "value": value, **more}]}

    def alter(*data: dict[str, object], **more: object) -> Any:
        return daemon.request("POST", path, {"data": data, **more})

    good = (of("many-a", "retention.ms", "5"), of("many-b", "retention.ms", "6"))
    done(alter(*good, validate_only=True))
    assert overrides(daemon, "many-a") == {}
    done(alter(*good))
    assert overrides(daemon, "many-a") == {"retention.ms": "5"}
    assert overrides(daemon, "many-b") == {"retention.ms": "6"}
    cases: tuple[tuple[int, int, dict[str, object]], ...] = (
        (404, 40403, of("nope", "retention.ms", "5")),
        (404, 404, of("many-b", "no.such", "5")),
        (400, 40002, of("many-b", "retention.ms", None)),
        (400, 40002, of("many-a", "flush.ms", "5")),  # the topic a second time
        (400, 400, {"topic_name": "many-b"}),
        (422, 422, {**of("many-b", "retention.ms", "5"), "config": 1}),
    )
    for status, code, wrong in cases:
        refused(alter(of("many-a", "retention.ms", "7"), wrong), status, code)
    named = {"topic": "many-b", "config": "no.such"}
    assert alter(of("many-b", "no.such", "5")).json["details"] == named
    assert overrides(daemon, "many-a") == {"retention.ms": "5"}
    for validate_only in (True, False):
        answer = alter(
            of("many-a", "retention.ms", None, operation="DELETE"),
            of("many-b", "cleanup.policy", "invalid"),
            validate_only=validate_only,
        )
        assert answer.status == 207
        (failure,) = answer.json["failures"]
        assert (failure["topic_name"], failure["error_code"]) == ("many-b", 40002)
        assert "cleanup.policy" in failure["message"]
        kept = {"retention.ms": "5"} if validate_only else {}
        assert overrides(daemon, "many-a") == kept
    assert overrides(daemon, "many-b") == {"retention.ms": "6"}
    elsewhere = "/v3/clusters/elsewhere/topics/-/configs:alter"
    refused(daemon.request("POST", elsewhere, {"data": []}), 404, 40403)


def test_what_is_not_there(daemon: Daemon) -> None:
    daemon.create_topic("there")
    for name in ("retention.byte", "internal.segment.bytes", "..%2f..", "%00"):
        path = f"{configs(daemon, 'there')}/{name}"
        refused(daemon.request("GET", path), 404, 404)
        refused(daemon.request("PUT", path, {"value": "5"}), 404, 404)
        refused(daemon.request("DELETE", path), 404, 404)
    missing = configs(daemon, "nope")
    refused(daemon.request("GET", missing), 404, 40403)
    refused(daemon.request("PUT", f"{missing}/flush.ms", {"value": "5"}), 404, 40403)
    refused(daemon.request("DELETE", f"{missing}/flush.ms"), 404, 40403)
    refused(daemon.request("POST", f"{missing}:alter", {"data": []}), 404, 40403)
    refused(
        daemon.request("PATCH", missing.removesuffix("/configs"), {"partitions_count": 2}),
        404,
        40403,
    )
    refused(daemon.request("GET", "/v3/clusters/elsewhere/topics/there/configs"), 404, 40403)
    refused(daemon.request("GET", f"{daemon.cluster()}/brokers/7/configs"), 404, 404)
    path = f"{configs(daemon, 'there')}/flush.ms"
    refused(daemon.request("PUT", path, {"value": None}), 400, 40002)
    refused(daemon.request("PUT", path, {"value": "x"}), 400, 40002)
    refused(daemon.request("PUT", path, {"value": 5}), 400, 400)


@pytest.mark.parametrize("lost", [0, 1])
def test_changes_survive_kill_9_and_the_loss_of_a_registry(tmp_path: Path, lost: int) -> None:
    """M13 M14: whichever directory loses its file, the other one tells."""
    with Daemon(tmp_path, log_dirs=2) as daemon:
        daemon.create_topic("t", 2)
        done(daemon.request("PUT", f"{configs(daemon, 't')}/flush.messages", {"value": "3"}))
        brokers = f"{daemon.cluster()}/brokers/1/configs"
        done(daemon.request("PUT", f"{brokers}/log.retention.ms", {"value": "7000000"}))
        growth = daemon.request("PATCH", f"{daemon.cluster()}/topics/t", {"partitions_count": 4})
        assert growth.status == 200
        daemon.kill()
        (daemon.log_dirs[lost] / "kafkalog.registry").unlink()
        daemon.start()
        assert overrides(daemon, "t") == {"flush.messages": "3"}
        assert daemon.request("GET", f"{daemon.cluster()}/topics/t").json["partitions_count"] == 4
        shown = daemon.request("GET", f"{configs(daemon, 't')}/retention.ms").json
        assert (shown["value"], shown["source"]) == ("7000000", "DYNAMIC_BROKER_CONFIG")
        assert len(list(tmp_path.glob("dir*/t-[0-3]"))) == 4
