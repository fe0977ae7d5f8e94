"""The two dashboards of ``deploy/grafana``: ``python -m tools.pages``.

Owns the queries of the panels and their presentation; ``tools/grafana.py`` owns the form of the
JSON. The second dashboard uses only the aliases (``kafka_*``), which shows that dashboards of other
deployments find their series here. ``make docs`` writes both, and a test keeps them current.
"""

from __future__ import annotations

import json

from tools.grafana import Json, Query, Row, annotation, dashboard, limits, panel, variable

_HERE = 'instance=~"$instance"'
_DIR = f'{_HERE},log_dir=~"$log_dir"'
_TOPIC = f'{_HERE},topic=~"$topic"'
_PARTITION = f'{_TOPIC},partition=~"$partition"'
_RATE = "[$__rate_interval]"
_STACKED = {"stacking": {"mode": "normal"}, "fillOpacity": 30}
_LIMIT_LINES = {"thresholdsStyle": {"mode": "line"}}
_ANY = limits(1, 1)  # one is too many
_FREE = f"kafkalog_log_dir_free_bytes{{{_DIR}}}"
_CAPACITY = f"kafkalog_log_dir_capacity_bytes{{{_DIR}}}"
_PHASE = f"kafkalog_cleaner_phase_seconds_total{{{_HERE}}}"


def _stat(
    title: str, query: Query, steps: list[Json] | None = None, unit: str = "short", width: int = 4
) -> Json:
    return panel(title, "stat", [query], unit, width=width, height=4, steps=steps)


def _line(title: str, unit: str, *queries: Query, stacked: bool = False) -> Json:
    return panel(title, "timeseries", queries, unit, custom=_STACKED if stacked else {})


def _quantiles(series: str, labels: str = _HERE) -> list[Query]:
    """Median and 99th percentile, by instance."""
    buckets = f"sum by (instance, le) (rate({series}_bucket{{{labels}}}{_RATE}))"
    return [
        Query(f"histogram_quantile({share}, {buckets})", f"{{{{instance}}}} p{percent}")
        for share, percent in (("0.5", 50), ("0.99", 99))
    ]


def _rate(by: str, counter: str, labels: str, legend: str) -> Query:
    return Query(f"sum by ({by}) (rate({counter}{{{labels}}}{_RATE}))", legend)


_HEALTH = Row("Health", [
    panel("State", "stat", [
        Query(f"kafkalog_broker_state{{{_HERE}}} == 1", "{{instance}} {{state}}"),
    ], width=6, height=4, options={"textMode": "name"}),
    _stat("Offline directories", Query(f"sum(1 - kafkalog_log_dir_online{{{_DIR}}})"), _ANY,
          width=6),
    _stat("Offline partitions",
          Query(f"sum(kafka_server_replicamanager_offlinereplicacount{{{_HERE}}})"), _ANY,
          width=6),
    _stat("Lost offsets",
          Query(f"sum(kafkalog_log_lost_offsets{{{_TOPIC}}}) or vector(0)"), _ANY, width=6),
    _stat("Refused reads of damaged batches", Query(
        f'sum(increase(kafkalog_fetch_refusals_total{{{_TOPIC},error="CorruptBatch"}}[$__range]))'
        " or vector(0)"), _ANY, width=8),
    _stat("Dead cleaner threads", Query(f"sum(1 - kafkalog_cleaner_thread_up{{{_HERE}}})"), _ANY),
    _stat("Quarantined partitions",
          Query(f"sum(kafkalog_cleaner_quarantined{{{_TOPIC}}}) or vector(0)"), _ANY),
    _stat("Overdue bytes", Query(f"sum(kafkalog_log_deletable_bytes{{{_TOPIC}}}) or vector(0)"),
          limits(1, 1 << 30), "bytes"),
    _stat("Time until full", Query(
        f"clamp_max(min({_FREE} / clamp_min(-deriv({_FREE}[6h]), 1)), "
        "31536000)"
    ), limits(7 * 86_400, 86_400), "s"),
])  # fmt: skip

_DISK = Row("Disk", [
    panel("Free", "timeseries", [Query(f"{_FREE} / {_CAPACITY}", "{{log_dir}}")], "percentunit",
          steps=limits(0.15, 0.05), custom=_LIMIT_LINES),
    panel("Usage", "timeseries", [
        Query(f"sum(kafkalog_log_size_bytes{{{_HERE}}})", "segments"),
        Query(f"sum(kafkalog_log_awaiting_delete_bytes{{{_DIR}}})", "awaiting deletion"),
        Query(f"sum(kafkalog_log_reserved_index_bytes{{{_DIR}}})", "reserved for indexes"),
        Query(f"clamp_min(sum(kafkalog_log_dir_used_bytes{{{_DIR}}})"
              f" - sum(kafkalog_log_size_bytes{{{_HERE}}})"
              f" - sum(kafkalog_log_awaiting_delete_bytes{{{_DIR}}})"
              f" - sum(kafkalog_log_reserved_index_bytes{{{_DIR}}}), 0)", "other"),
    ], "bytes", custom=_STACKED, description="Other: indexes in use, files that the cleaner is "
        "writing, other programs. A file system with several log directories counts for each."),
    _line("Free in a day at this rate", "bytes",
          Query(f"clamp_min(predict_linear({_FREE}[6h], 86400), 0)", "{{log_dir}}")),
    _line("Bytes appended and deleted", "Bps",
          _rate("instance", "kafkalog_append_bytes_total", _TOPIC, "{{instance}} appended"),
          _rate("instance", "kafkalog_retention_deleted_bytes_total", _TOPIC,
                "{{instance}} retention"),
          _rate("instance", "kafkalog_cleaner_removed_bytes_total", _TOPIC,
                "{{instance}} compaction")),
    _line("Partitions", "short",
          Query(f"kafkalog_log_dir_partitions{{{_DIR}}}", "{{log_dir}}")),
    _line("Moves between directories", "Bps",
          _rate("log_dir", "kafkalog_partition_move_bytes_total", _DIR, "into {{log_dir}}")),
])  # fmt: skip

_RETENTION = Row("Retention", [
    _line("Deleted, by reason", "Bps",
          _rate("reason", "kafkalog_retention_deleted_bytes_total", _TOPIC, "{{reason}}"),
          stacked=True),
    _line("Overdue, by topic", "bytes", Query(
        f"sum by (topic) (kafkalog_log_deletable_bytes{{{_TOPIC}}})", "{{topic}}")),
    panel("Age of the oldest record", "bargauge", [Query(
        f"time() - min by (topic) (kafkalog_log_oldest_record_timestamp_seconds{{{_PARTITION}}})",
        "{{topic}}",
    )], "s", options={"orientation": "horizontal"}),
    panel("Duration of a check", "timeseries", _quantiles("kafkalog_retention_duration_seconds"),
          "s"),
    _line("Time since the last check", "s", Query(
        f"time() - kafkalog_retention_last_run_timestamp_seconds{{{_HERE}}}", "{{instance}}")),
    _line("Held for archives", "bytes", Query(
        f"sum by (topic) (kafkalog_archive_held_bytes{{{_PARTITION}}})", "{{topic}}")),
    _line("Wait for the archive", "s", Query(
        f"max by (topic) (kafkalog_archive_lag_seconds{{{_PARTITION}}})", "{{topic}}")),
    _line("Not archived", "bytes", Query(
        f"sum by (topic) (kafkalog_archive_lag_bytes{{{_PARTITION}}})", "{{topic}}")),
])  # fmt: skip

_COMPACTION = Row("Compaction", [
    _line("Dirty ratio and threshold", "percentunit",
          Query(f"kafkalog_cleaner_dirty_ratio{{{_PARTITION}}}", "{{topic}}-{{partition}}"),
          Query(f"kafkalog_cleaner_min_cleanable_ratio{{{_TOPIC}}}", "{{topic}} threshold")),
    panel("Phases of the threads", "state-timeline", [
        Query(f"sum by (instance, thread, phase) (rate({_PHASE}{_RATE}))", "{{thread}} {{phase}}"),
    ], "percentunit", width=16, steps=limits(0.05, 0.5), options={"mergeValues": True}),
    _line("Read, written, removed", "Bps",
          *(_rate("instance", f"kafkalog_cleaner_{name}_bytes_total", _TOPIC,
                  f"{{{{instance}}}} {name}") for name in ("read", "written", "removed"))),
    _line("Share of bytes removed, by topic", "percentunit", Query(
        f"sum by (topic) (increase(kafkalog_cleaner_removed_bytes_total{{{_TOPIC}}}[$__range]))"
        f" / sum by (topic) (increase(kafkalog_cleaner_read_bytes_total{{{_TOPIC}}}[$__range]))",
        "{{topic}}")),
    _line("Records removed, by reason", "cps",
          _rate("reason", "kafkalog_cleaner_records_removed_total", _TOPIC, "{{reason}}"),
          stacked=True),
    panel("Offset map", "timeseries", [
        Query(f"kafkalog_cleaner_map_utilization_ratio{{{_HERE}}}", "{{thread}}"),
    ], "percentunit", steps=limits(0.7, 0.855), custom=_LIMIT_LINES),
    _line("Batches with retained tombstones", "short", Query(
        f"sum by (topic) (kafkalog_cleaner_tombstone_batches{{{_PARTITION}}})", "{{topic}}")),
    _line("Time until the first tombstones may be deleted", "s", Query(
        f"min by (topic) (kafkalog_cleaner_next_horizon_timestamp_seconds{{{_PARTITION}}})"
        " - time()", "{{topic}}")),
    panel("Time since the last clean", "table", [Query(
        "time() - min by (topic, partition)"
        f" (kafkalog_cleaner_last_success_timestamp_seconds{{{_PARTITION}}})")], "s"),
])  # fmt: skip

_TOPICS = Row("Topic $topic", [
    panel("Log Size", "table", [Query(
        f"sum by (topic, partition) (kafkalog_log_size_bytes{{{_PARTITION}}})")], "bytes"),
    _line("Segments", "short",
          Query(f"kafkalog_log_segments{{{_PARTITION}}}", "{{partition}}"), stacked=True),
    _line("Records (exact)", "short",
          Query(f"kafkalog_log_records{{{_PARTITION}}}", "{{partition}}"), stacked=True),
    _line("Start and end offset", "short",
          Query(f"kafkalog_log_start_offset{{{_PARTITION}}}", "{{partition}} start"),
          Query(f"kafkalog_log_end_offset{{{_PARTITION}}}", "{{partition}} end")),
    _line("Records in", "cps",
          _rate("topic", "kafkalog_append_records_total", _TOPIC, "{{topic}}")),
    _line("Bytes in and out", "Bps",
          _rate("topic", "kafkalog_append_bytes_total", _TOPIC, "in"),
          _rate("topic", "kafkalog_fetch_bytes_total", _TOPIC, "out")),
], repeat="topic")  # fmt: skip

_GROUPS = Row("Consumer groups", [
    _line("Lag, by group", "short", Query(
        f"sum by (group) (kafkalog_group_lag_offsets{{{_TOPIC}}})", "{{group}}")),
    _line("Lag, by topic", "short", Query(
        f"sum by (topic) (kafkalog_group_lag_offsets{{{_TOPIC}}})", "{{topic}}")),
    panel("Retention left before unread records are deleted", "timeseries", [Query(
        f"min by (group, topic) (kafkalog_group_retention_left_ratio{{{_TOPIC}}})",
        "{{group}} {{topic}}",
    )], "percentunit", steps=limits(0.2, 0.05), custom=_LIMIT_LINES),
])  # fmt: skip

_OK = f'{_HERE},outcome="ok"'
_SERVICE = Row("Service", [
    panel("Append", "timeseries", _quantiles("kafkalog_append_seconds", _OK), "s"),
    panel("Append, distribution", "heatmap", [Query(
        f"sum by (le) (increase(kafkalog_append_seconds_bucket{{{_OK}}}{_RATE}))", "{{le}}")], "s"),
    panel("Fetch", "timeseries", _quantiles("kafkalog_fetch_seconds", _OK), "s"),
    panel("Sync", "timeseries", _quantiles("kafkalog_flush_seconds", _OK), "s"),
    _line("Answers, by status", "reqps",
          _rate("code", "kafkalog_http_requests_total", _HERE, "{{code}}"), stacked=True),
    _line("Requests in progress", "short",
          Query(f"kafkalog_http_in_flight{{{_HERE}}}", "{{instance}}")),
    panel("Lag of the event loop", "timeseries", _quantiles("kafkalog_event_loop_lag_seconds"),
          "s", steps=limits(0.1, 0.25), custom=_LIMIT_LINES),
    _line("Memory", "bytes", Query(
        f'process_resident_memory_bytes{{{_HERE},job="kafkalog"}}', "{{instance}}")),
    _line("Processor", "percentunit", Query(
        f'rate(process_cpu_seconds_total{{{_HERE},job="kafkalog"}}{_RATE})', "{{instance}}")),
    panel("File descriptors", "timeseries", [Query(
        f'process_open_fds{{{_HERE},job="kafkalog"}} / process_max_fds{{{_HERE},job="kafkalog"}}',
        "{{instance}}",
    )], "percentunit", steps=limits(0.7, 0.85), custom=_LIMIT_LINES),
    _line("Garbage collections", "cps",
          _rate("generation", "python_gc_collections_total", f'{_HERE},job="kafkalog"',
                "generation {{generation}}")),
    _line("Failed background tasks", "short", Query(
        f"sum by (task) (increase(kafkalog_scheduler_task_errors_total{{{_HERE}}}[$__range]))",
        "{{task}}")),
])  # fmt: skip

_CONFIG = f"kafkalog_config_info{{{_HERE}}}"
LOGS = dashboard(
    uid="kafkalog-logs",
    title="kafkalog",
    description="Logs, retention and compaction of kafkalog.",
    variables=[
        variable("instance", "kafkalog_build_info"),
        variable("log_dir", f"kafkalog_log_dir_online{{{_HERE}}}"),
        variable("topic", f"kafkalog_log_size_bytes{{{_HERE}}}"),
        variable("partition", f"kafkalog_log_size_bytes{{{_TOPIC}}}"),
    ],
    rows=[_HEALTH, _DISK, _RETENTION, _GROUPS, _COMPACTION, _TOPICS, _SERVICE],
    annotations=[
        annotation("Starts", f'1000 * process_start_time_seconds{{{_HERE},job="kafkalog"}}',
                   "{{instance}} started", "blue", is_time=True),
        annotation("Changed configuration",
                   f"{_CONFIG} unless on (instance, config_sha256) {_CONFIG} offset 5m",
                   "{{instance}} has a changed configuration", "purple"),
        annotation("Deletions", "sum by (topic, reason) (increase("
                   f"kafkalog_retention_deleted_segments_total{{{_TOPIC}}}[$__interval])) > 0",
                   "{{topic}}: segments deleted by {{reason}}", "orange"),
    ],
)  # fmt: skip


# ---- the panels of other deployments, on the aliases

_METRICS = "kafka_server_brokertopicmetrics_"
_CLEANER, _MANAGER = "kafka_log_logcleaner_", "kafka_log_logcleanermanager_"


def _of_topics(bean: str, labels: str = f'{_TOPIC},topic!=""') -> Query:
    return _rate("topic", f"{_METRICS}{bean}_total", labels, "{{topic}}")


_BROKERS = Row("Brokers", [
    _stat("Brokers online", Query(f"count(kafka_server_replicamanager_leadercount{{{_HERE}}})")),
    _stat("Online partitions",
          Query(f"sum(kafka_server_replicamanager_partitioncount{{{_HERE}}})")),
    _stat("Offline partitions",
          Query(f"sum(kafka_server_replicamanager_offlinereplicacount{{{_HERE}}})"), _ANY),
    _stat("Offline log directories",
          Query(f"sum(kafka_log_logmanager_offlinelogdirectorycount{{{_HERE}}})"), _ANY),
    _stat("Broker state", Query(f"kafka_server_kafkaserver_brokerstate{{{_HERE}}}",
                                "{{instance}}")),
    _stat("Directory offline", Query(
        f"kafka_log_logmanager_logdirectoryoffline{{{_HERE}}}", "{{logDirectory}}"), _ANY),
])  # fmt: skip

_TRAFFIC = Row("Traffic", [
    _line("Incoming byte rate", "Bps", _of_topics("bytesin")),
    _line("Outgoing byte rate", "Bps", _of_topics("bytesout")),
    _line("Incoming messages rate", "cps", _of_topics("messagesin")),
    _line("Produce requests", "reqps", _of_topics("totalproducerequests"),
          _of_topics("failedproducerequests")),
    _line("Fetch requests", "reqps", _of_topics("totalfetchrequests"),
          _of_topics("failedfetchrequests")),
    _line("All topics", "Bps",
          *(Query(f'sum(rate({_METRICS}{bean}_total{{{_HERE},topic=""}}{_RATE}))', bean)
            for bean in ("bytesin", "bytesout", "bytesrejected"))),
    _line("Refused batches", "cps",
          *(Query(f"sum(rate({_METRICS}{bean}_total{{{_HERE}}}{_RATE}))", bean)
            for bean in ("invalidmessagecrcrecords", "nokeycompactedtopicrecords"))),
])  # fmt: skip

_ALIAS_LOGS = Row("Logs", [
    panel("Log Size", "table", [Query(
        f"sum by (topic, partition) (kafka_log_log_size{{{_PARTITION}}})")], "bytes"),
    _line("Log size by topic", "bytes",
          Query(f"sum by (topic) (kafka_log_log_size{{{_TOPIC}}})", "{{topic}}")),
    _line("Segments by topic", "short",
          Query(f"sum by (topic) (kafka_log_log_numlogsegments{{{_TOPIC}}})", "{{topic}}")),
    _line("Start and end offset", "short",
          Query(f"kafka_log_log_logstartoffset{{{_PARTITION}}}", "{{topic}}-{{partition}} start"),
          Query(f"kafka_log_log_logendoffset{{{_PARTITION}}}", "{{topic}}-{{partition}} end")),
    _line("Log flush time", "ms", Query(
        f"kafka_log_logflushstats_logflushrateandtimems{{{_HERE}}}", "{{quantile}}")),
    _line("Log flushes", "cps", Query(
        f"rate(kafka_log_logflushstats_logflushrateandtimems_count_total{{{_HERE}}}{_RATE})",
        "{{instance}}")),
    _line("Disk bytes of the process", "Bps", *(
        Query(f"rate(kafka_server_kafkaserver_linux_disk_{way}_bytes{{{_HERE}}}{_RATE})",
              f"{{{{instance}}}} {way}") for way in ("read", "write"))),
    _line("Remaining recovery", "short",
          Query(f"kafka_log_logmanager_remaininglogstorecover{{{_HERE}}}", "{{dir}} logs"),
          Query(f"kafka_log_logmanager_remainingsegmentstorecover{{{_HERE}}}",
                "{{dir}} segments")),
])  # fmt: skip

_ALIAS_CLEANER = Row("Log cleaner", [
    *(_stat(title, Query(f"{name}{{{_HERE}}}", "{{instance}}"), steps, unit)
      for title, name, steps, unit in (
          ("Dead threads", f"{_CLEANER}deadthreadcount", _ANY, "short"),
          ("Offset map", f"{_CLEANER}max_buffer_utilization_percent", limits(70, 86), "percent"),
          ("Recopied", f"{_CLEANER}cleaner_recopy_percent", None, "percent"),
          ("Longest clean", f"{_CLEANER}max_clean_time_secs", None, "s"),
          ("Beyond max.compaction.lag.ms", f"{_CLEANER}max_compaction_delay_secs", _ANY, "s"),
          ("Dirtiest log", f"{_MANAGER}max_dirty_percent", None, "percent"),
      )),
    _line("Time since a thread looked for work", "ms",
          Query(f"{_MANAGER}time_since_last_run_ms{{{_HERE}}}", "{{instance}}")),
    _line("Uncleanable partitions", "short",
          Query(f"{_MANAGER}uncleanable_partitions_count{{{_HERE}}}", "{{logDirectory}}")),
    _line("Uncleanable bytes", "bytes",
          Query(f"{_MANAGER}uncleanable_bytes{{{_HERE}}}", "{{logDirectory}}")),
])  # fmt: skip

ALIASES = dashboard(
    uid="kafkalog-strimzi-compat",
    title="kafkalog by Kafka's metric names",
    description="Panels of common Kafka dashboards, with the series kafka_* only.",
    variables=[
        variable("instance", "kafka_server_kafkaserver_brokerstate"),
        variable("topic", f"kafka_log_log_size{{{_HERE}}}"),
        variable("partition", f"kafka_log_log_size{{{_TOPIC}}}"),
    ],
    rows=[_BROKERS, _TRAFFIC, _ALIAS_LOGS, _ALIAS_CLEANER],
)

FILES = {"kafkalog.json": LOGS, "kafkalog-strimzi-compat.json": ALIASES}


def text_of(document: Json) -> str:
    """The content of its file."""
    return json.dumps(document, indent=1) + "\n"
