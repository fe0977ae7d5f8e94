"""The jobs as programs of their own: ``python -m kafkalog.spark.jobs.compact``, spark-submit.

The same arguments as ``kafkalog spark compact``, read by the same command; only the default of
``--spark`` differs, because whoever submits to Spark wants it. An edge, as ``kafkalog.__main__``
is: the one module of its ring that imports the command line.
"""

from __future__ import annotations

import click

from kafkalog.cli.main import COMMANDS, LazyGroup


def run_as_program(job: str) -> None:
    """Read sys.argv, run the job, exit with its status."""
    group = LazyGroup("spark", "", COMMANDS["spark"])
    command = group.get_command(click.Context(group), job)
    assert command is not None, "named by the module of the job"
    command.main(
        prog_name=f"python -m kafkalog.spark.jobs.{job}", default_map={"is_on_spark": True}
    )
