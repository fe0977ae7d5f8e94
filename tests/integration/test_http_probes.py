"""Goal: probes say what is true, and /metrics counts what happened.
Method: a real daemon; metrics parsed by prometheus_client's own parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.http_world import append, batch_of, check_sealed, read_batches

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon


def metrics(daemon: Daemon) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = daemon.request("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    check_sealed(answer)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def total(
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str
) -> float:
    """Sum over the samples of a name that carry these labels."""
    wanted = set(labels.items())
    return sum(value for (one, got), value in samples.items() if one == name and wanted <= got)


def test_probes(daemon: Daemon) -> None:
    """M01: alive and ready, under every alias, with the checks named."""
    assert daemon.request("GET", "/livez").json == {"status": "ok"}
    aliases = ("/healthz", "/status/ready", "/_health", "/startupz")
    for path in ("/readyz", *aliases):
        answer = daemon.request("GET", path)
        assert answer.status == 200
        assert answer.json["status"] == "ready"
        assert all(answer.json["checks"].values())
        assert answer.json["online_log_dirs"] == 1
        check_sealed(answer)
    for path in ("/ready", "/healthy"):  # the Bridge's, which clients compare with 204
        answer = daemon.request("GET", path)
        assert (answer.status, answer.body) == (204, b"")
        check_sealed(answer)


def test_metrics_count_what_happened(daemon: Daemon) -> None:
    """M26: appends, bytes, fetches, offsets, requests by route and status, loop lag."""
    daemon.create_topic("counted")
    before = metrics(daemon)
    daemon.produce_text("counted", "a", "b", "c")
    raw = read_batches(daemon, "counted", 0)
    daemon.request("GET", "/topics/none-such")
    after = metrics(daemon)

    def grown(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    assert grown("kafkalog_append_records_total", topic="counted") == 3
    assert grown("kafkalog_append_bytes_total", topic="counted") == len(raw.body)
    assert grown("kafkalog_fetch_bytes_total", topic="counted") == len(raw.body)
    assert grown("kafkalog_http_requests_total", route="/topics/{topic}", code="404") == 1
    assert grown("kafkalog_http_requests_total", route="/topics/{topic}", code="200") == 1
    assert total(after, "kafkalog_log_end_offset", topic="counted", partition="0") == 3
    assert total(after, "kafkalog_log_dir_online") == 1
    while not total(after, "kafkalog_event_loop_lag_seconds_count"):
        after = metrics(
            daemon
        )  # ten a second: the first may not be due yet; the test's time bounds it


OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@pytest.mark.parametrize(
    ("accept", "is_openmetrics"),
    [
        # what a Prometheus of 2.42 sends, and one of 3.x
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
            "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            True,
        ),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
            "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3",
            True,
        ),
        ("text/plain, application/openmetrics-text;q=0.5", False),
        ("*/*", False),
        ("image/png", False),
    ],
)
def test_the_format_is_negotiated(daemon: Daemon, accept: str, *, is_openmetrics: bool) -> None:
    """M26: each parses as what it says it is; nobody is refused."""
    answer = daemon.request("GET", "/metrics", headers={"Accept": accept})
    assert answer.status == 200
    assert answer.headers["Vary"] == "Accept"
    page = answer.body.decode()
    parse = openmetrics_families if is_openmetrics else text_string_to_metric_families
    found = {family.name for family in parse(page)}
    assert {"kafkalog_broker_state", "kafka_server_replicamanager_leadercount"} <= found
    assert (answer.headers["Content-Type"] == OPENMETRICS) is is_openmetrics
    assert page.endswith("# EOF\n") is is_openmetrics


def test_what_is_refused_is_counted_by_topic_and_kind(daemon: Daemon) -> None:
    """M26: also under Kafka's names; a topic that is not there makes no series."""
    daemon.create_topic("refusing", max_message_bytes="100")
    before = metrics(daemon)
    assert append(daemon, "refusing", batch_of(b"x" * 1_000)).status == 413
    batch = bytearray(batch_of(b"value"))
    batch[-1] ^= 1
    assert append(daemon, "refusing", bytes(batch)).status == 422
    assert read_batches(daemon, "refusing", 7).status == 416
    assert read_batches(daemon, "none-here", 0).status == 404
    after = metrics(daemon)

    def grown(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    kafka = "kafka_server_brokertopicmetrics_"
    topic = {"topic": "refusing"}
    assert grown("kafkalog_append_requests_total", **topic) == 2
    assert grown("kafkalog_append_refusals_total", error="RecordBatchTooLarge", **topic) == 1
    assert grown("kafkalog_append_refusals_total", error="BadBatchCrc", **topic) == 1
    assert grown("kafkalog_append_rejected_bytes_total", **topic) > 1_000
    assert grown("kafkalog_fetch_refusals_total", error="OffsetAboveLogEnd", **topic) == 1
    assert grown(f"{kafka}failedproducerequests_total", **topic) == 2
    assert grown(f"{kafka}failedfetchrequests_total", **topic) == 1
    assert not any("none-here" in value for _, labels in after for _, value in labels)


def test_hostile_paths_and_methods_make_no_series(daemon: Daemon) -> None:
    """Labels come from the route table, never from the client."""
    for number in range(50):
        daemon.request("GET", f"/made/up/{number}")
        daemon.request("GET", f"/topics/none-{number}")
        daemon.request(f"X{number}", "/topics")
    names = metrics(daemon)
    values = {value for _, labels in names for _, value in labels}
    assert not any("made" in value or value.startswith("none-") for value in values)
    assert not any(value.startswith("X") and value[1:].isdigit() for value in values)
