"""The jobs of ``kafkalog spark`` as a file for spark-submit: ``submit.py JOB [OPTIONS]``.

The commands and options are the same; only the default of ``--spark`` differs. Without
spark-submit: ``python -m kafkalog.cli.jobs.submit JOB [OPTIONS]``.
"""

from __future__ import annotations

from kafkalog.cli.main import COMMANDS, LazyGroup


def main() -> None:
    """Read sys.argv, run the job, exit with its status."""
    jobs = COMMANDS["spark"]
    LazyGroup("spark", "Jobs over whole directories of logs, on Spark.", jobs).main(
        prog_name="python -m kafkalog.cli.jobs.submit",
        default_map={job: {"is_on_spark": True} for job in jobs},
    )


if __name__ == "__main__":
    main()
