"""What lies under deploy/ and docs/runbooks, read for the tests: expressions and series names."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from tests.integration.daemon import ROOT
from tests.operate.prometheus import DEPLOYED, rules_of

GRAFANA = ROOT / "deploy" / "grafana"
RUNBOOKS = ROOT / "docs" / "runbooks"
DASHBOARDS = ("kafkalog.json", "kafkalog-strimzi-compat.json")

# Names of rules and dashboards that the daemon does not have yet. Empty in the end: a name that has
# come must be taken out.
EXPECTED_MISSING: frozenset[str] = frozenset(
    {
        "kafka_log_log_logendoffset",
        "kafka_log_log_logstartoffset",
        "kafka_log_log_numlogsegments",
        "kafka_log_log_size",
        "kafka_log_logflushstats_logflushrateandtimems",
        "kafka_log_logflushstats_logflushrateandtimems_count_total",
        "kafka_log_logmanager_logdirectoryoffline",
        "kafka_log_logmanager_offlinelogdirectorycount",
        "kafka_log_logmanager_remaininglogstorecover",
        "kafka_log_logmanager_remainingsegmentstorecover",
        "kafka_server_brokertopicmetrics_bytesin_total",
        "kafka_server_brokertopicmetrics_bytesout_total",
        "kafka_server_brokertopicmetrics_bytesrejected_total",
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        "kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total",
        "kafka_server_brokertopicmetrics_messagesin_total",
        "kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total",
        "kafka_server_brokertopicmetrics_totalfetchrequests_total",
        "kafka_server_brokertopicmetrics_totalproducerequests_total",
        "kafka_server_kafkaserver_brokerstate",
        "kafka_server_kafkaserver_linux_disk_read_bytes",
        "kafka_server_kafkaserver_linux_disk_write_bytes",
        "kafka_server_replicamanager_leadercount",
        "kafka_server_replicamanager_offlinereplicacount",
        "kafka_server_replicamanager_partitioncount",
        "kafkalog_broker_state",
        "kafkalog_cleaner_thread_heartbeat_timestamp_seconds",
        "kafkalog_config_info",
        "kafkalog_log_awaiting_delete_bytes",
        "kafkalog_log_deletable_bytes",
        "kafkalog_log_dir_used_bytes",
        "kafkalog_log_newest_record_timestamp_seconds",
        "kafkalog_log_oldest_record_timestamp_seconds",
        "kafkalog_log_records",
        "kafkalog_log_reserved_index_bytes",
    }
)

# What is in no list of ours: Prometheus' own, and the client library's.
STOCK = re.compile(r"up|process_\w+|python_gc_\w+")


class Expression(NamedTuple):
    """One of a dashboard or rule, and where it stands."""

    place: str
    expr: str


def dashboard(file_name: str) -> dict[str, Any]:
    """The deployed JSON."""
    document = json.loads((GRAFANA / file_name).read_text())
    assert isinstance(document, dict)
    return document


def panel_expressions(file_name: str) -> list[Expression]:
    """Of all panels and annotations."""
    document = dashboard(file_name)
    found = [
        Expression(f"{panel['title']} {target['refId']}", target["expr"])
        for panel in document["panels"]
        for target in panel.get("targets", ())
    ]
    return found + [
        Expression(each["name"], each["expr"]) for each in document["annotations"]["list"]
    ]


def rule_expressions() -> list[Expression]:
    """Of all alerts."""
    rules = rules_of(DEPLOYED / "kafkalog.rules.yml")
    return [Expression(rule["alert"], rule["expr"]) for rule in rules]


def series_names(expr: str) -> set[str]:
    """Names of series in PromQL: ours, Kafka's and stock ones."""
    without_strings = re.sub(r'"[^"]*"', '""', expr)
    return set(re.findall(r"\b(?:kafkalog_|kafka_|process_|python_)\w+|\bup\b", without_strings))


def all_series_names() -> set[str]:
    """Of rules, panels and annotations."""
    expressions = rule_expressions()
    for file_name in DASHBOARDS:
        expressions += panel_expressions(file_name)
    return set().union(*(series_names(each.expr) for each in expressions))


def documented_names() -> set[str]:
    """Of docs/metrics.md, which is generated; a histogram's series among them."""
    names: set[str] = set()
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) ", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE
    )
    for name, kind in rows:
        names |= (
            {f"{name}_{part}" for part in ("bucket", "sum", "count")}
            if kind == "histogram"
            else {name}
        )
    return names
