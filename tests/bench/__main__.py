"""``python -m tests.bench [--quick] [--spark] [--without-kafka] [--profile] [name ...]``.

A full run writes results/<name>.json and renews docs/benchmarks.md. --quick uses small data and two
rounds, prints, and leaves the result files alone. The benchmarks on Spark (`make spark-setup`, Java
17) start sessions of ten seconds each: a full run has them, a quick one only by --spark, which
means them alone, or by name. --profile writes CPU profiles of the daemon to
build/profiles (its figures are then not to be quoted).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalog.observe.logging import configure_logging
from tests.bench import (
    cleaner_rows,
    fetch_rows,
    interference_rows,
    perf_rows,
    produce_rows,
    report,
    results,
    retention_rows,
    scrape_rows,
    spark_job_rows,
    spark_rows,
    spark_write_rows,
    start_rows,
    tail_rows,
)
from tests.bench.bench import Bench
from tests.bench.daemon_side import raise_open_files
from tests.bench.kafka_side import Jars
from tests.oracle.kafka import KafkaToolError

if TYPE_CHECKING:
    from collections.abc import Callable

BENCHMARKS: dict[str, Callable[[Bench], results.Result]] = {
    **produce_rows.ROWS,
    **fetch_rows.ROWS,
    **perf_rows.ROWS,
    "tail_events": tail_rows.tail_events,
    **start_rows.ROWS,
    "retention_pass": retention_rows.retention_pass,
    **cleaner_rows.ROWS,
    "interference": interference_rows.interference,
    "scrape": scrape_rows.scrape,
}
ON_SPARK: dict[str, Callable[[Bench], results.Result]] = {
    **spark_rows.ROWS,
    **spark_write_rows.ROWS,
    "spark_decode": spark_job_rows.spark_decode,
    "spark_compaction": spark_job_rows.spark_compaction,
    "spark_audit": spark_job_rows.spark_audit,
}
ALL = {**BENCHMARKS, **ON_SPARK}
FULL_ROUNDS, QUICK_ROUNDS = 5, 2


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(ALL))
    parser.add_argument("--quick", action="store_true", help="small data, two rounds, print only")
    parser.add_argument("--spark", action="store_true", help="those on Spark alone")
    parser.add_argument("--without-kafka", action="store_true", help="kafkalog alone, print only")
    parser.add_argument("--profile", action="store_true", help="CPU profiles, print only")
    parser.add_argument("--rounds", type=int, help="rounds to count")
    parser.add_argument("--work", type=Path, default=results.ROOT / "build" / "bench")
    options = parser.parse_args()
    # As installed: modules are read from byte code, not compiled at every start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Logs that benchmarks make are recovered once, which warns of every index.
    configure_logging(sys.stderr, log_format="console", level="error")
    unknown = set(options.names) - set(ALL)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    names = options.names or wanted(quick=options.quick, on_spark=options.spark)
    jars = None if options.without_kafka else find_kafka()
    connector = find_connector(jars) if jars is not None and set(names) & set(ON_SPARK) else None
    profiles = None
    if options.profile:
        profiles = results.ROOT / "build" / "profiles"
        profiles.mkdir(parents=True, exist_ok=True)
    bench = Bench(
        work=options.work.resolve(),
        rounds=options.rounds or (QUICK_ROUNDS if options.quick else FULL_ROUNDS),
        quick=options.quick,
        jars=jars,
        connector=connector,
        profiles=profiles,
        open_files=raise_open_files(),
    )
    is_kept = not options.quick and not options.profile and not options.without_kafka
    for name in names:
        result = run_one(bench, name)
        has_kafka_beside = connector is not None or name not in ON_SPARK
        if is_kept and jars is not None and has_kafka_beside:
            results.write(result, jars.version)
    if is_kept and report.PAGE.exists():
        report.main()


def wanted(*, quick: bool, on_spark: bool) -> list[str]:
    if on_spark:
        return list(ON_SPARK)
    return list(BENCHMARKS if quick else ALL)


def find_connector(jars: Jars) -> str | None:
    """Spark's own Kafka source and sink; None, with the reason printed, where it cannot be had."""
    try:
        return jars.connector()
    except KafkaToolError as error:
        print(f"bench: Spark without Kafka: {error}", flush=True)
        return None


def find_kafka() -> Jars | None:
    """Kafka's jars; None, with the reason printed, where they cannot be had."""
    try:
        return Jars()
    except (KafkaToolError, OSError) as error:
        print(f"bench: without Kafka: {error}", flush=True)
        return None


def run_one(bench: Bench, name: str) -> results.Result:
    """Run one benchmark in a directory of its own and print what it found."""
    started = time.monotonic()
    bench.name = name
    bench.clear()
    bench.work.mkdir(parents=True, exist_ok=True)
    try:
        result = ALL[name](bench)
    finally:
        bench.clear()
    print(describe(result, time.monotonic() - started), flush=True)
    return result


def describe(result: results.Result, seconds: float) -> str:
    content = results.to_json(result, None)
    met = {True: "met", False: "MISSED", None: "no verdict"}[content["met"]]
    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    lines = [
        f"{result.name}: {content['median']:,.6g} {result.unit}"
        f" ({content['min']:,.6g} to {content['max']:,.6g}); goal {result.goal.text}: {met}"
        f" [{seconds:.0f} s]"
    ]
    if content["kafka_median"] is not None:
        lines.append(
            f"  Kafka {content['kafka_median']:,.6g} ({content['kafka_min']:,.6g} to"
            f" {content['kafka_max']:,.6g}); ratio {content['ratio_median']:.3g}"
        )
    for title, side in (("kafkalog", "kafkalog"), ("Kafka", "kafka")):
        last = getattr(result.rounds[-1], side)
        if last is not None:
            shares = {"client_cpu": last.client_cpu_share, "server_cpu": last.server_cpu_share}
            known = {key: value for key, value in shares.items() if value is not None}
            if last.server_cpu_share and not result.lower_is_better:
                known["per_server_cpu_second"] = last.value / last.server_cpu_share
            figures = {**known, **last.extra, **(result.beside if side == "kafkalog" else {})}
            text = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
            if text:
                lines.append(f"  {title}, last round: {text}"[: width + 60])
    return "\n".join(lines)


if __name__ == "__main__":
    main()
