"""Goal: probes say what is true, and /metrics counts what happened.
Method: a real daemon; metrics parsed by prometheus_client's own parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from tests.integration.http_world import check_sealed, read_batches

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon


def metrics(daemon: Daemon) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All samples by name and labels."""
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
    for path in ("/readyz", "/healthz", "/ready", "/healthy", "/status/ready", "/startupz"):
        answer = daemon.request("GET", path)
        assert answer.status == 200
        assert answer.json["status"] == "ready"
        assert all(answer.json["checks"].values())
        assert answer.json["online_log_dirs"] == 1
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
