"""The composition root: the only place that builds the object graph of the daemon."""

from __future__ import annotations

try:
    import dataclasses
    import faulthandler
    import functools
    import gc
    import os
    import platform
    import re
    import signal
    import sys
    from itertools import pairwise
    from typing import TYPE_CHECKING

    import click

    from kafkalog import __version__
    from kafkalog.cli.arguments import PROGRAM
    from kafkalog.cli.configs import settings_from, with_settings_source
    from kafkalog.cli.main import INTERRUPTED, make_cli, sentence_of
    from kafkalog.errors import InvalidConfig, KafkalogError, LogDirOffline, UnusableLogDirs
    from kafkalog.server.early_stop import EarlyStop
except KeyboardInterrupt:  # imports take long enough for a Ctrl-C
    raise SystemExit(130) from None

if TYPE_CHECKING:
    from collections.abc import Callable

    import structlog

    from kafkalog.broker.broker_config import BrokerConfig
    from kafkalog.broker.directory.writer import CompletionSink
    from kafkalog.env.process_facts import AccessFault
    from kafkalog.observe.terminal_line import TerminalLine
    from kafkalog.server.daemon import Graph
    from kafkalog.settings import Settings

# sysexits.h: the input is wrong. deploy/systemd does not restart on it: a restart changes nothing.
UNUSABLE_LOG_DIRS_EXIT = 65
_STDERR = 2  # what a dump of all stacks goes to; it needs no interpreter that still turns


class _Server(click.Command):
    """Says what stands in the place of options that other servers have."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See click."""
        values = dict(pairwise(args)) | dict(each.split("=", 1) for each in args if "=" in each)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            if name in ("--port", "-p"):
                remedy = f"The port is a setting: --override http.port={values.get(name, 'PORT')}"
            elif name in ("--config", "-f"):
                remedy = f"The file is an argument: kafkalog server {values.get(name, 'FILE')}"
            else:
                raise
            raise click.UsageError(f"{error.message} {remedy}", ctx) from error


@click.command(cls=_Server)
@with_settings_source
def server(properties: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Run the daemon in the foreground until SIGTERM or SIGINT.

    PROPERTIES is a file in Kafka's server.properties syntax; of several each goes over those before
    it, and one with a dash in front may be missing (-/mnt/shared/config/server.properties, behind
    --). Without any, KAFKALOG_SERVER_PROPERTIES names them, separated by colons. The environment
    (KAFKALOG_LOG_RETENTION_MS=...) goes over the files, --override over both.

    Example: kafkalog server config/server.properties --override http.port=9000
    """
    _refuse_words(properties)
    early_stop = EarlyStop()
    early_stop.install()
    faulthandler.enable(file=_STDERR)  # also at the watchdog's SIGABRT
    faulthandler.register(signal.SIGUSR1, file=_STDERR, all_threads=True)
    try:
        settings = settings_from(properties, overrides)
    except InvalidConfig as error:
        raise click.ClickException(error.message) from error
    early_stop.set_format(settings.server.log_format)
    sys.exit(_serve(settings))


def _refuse_words(properties: tuple[str, ...]) -> None:
    """Usage error for an argument that other programs take and this one would read as a file."""
    for word in properties:
        if word.startswith("-") or os.path.exists(word):
            continue
        key, is_pair, value = word.partition("=")
        if is_pair and "/" not in key:
            remedy = f"a setting is --override {key}={value}"
        elif re.fullmatch("[a-z]+", word):
            remedy = (
                "to start, say just kafkalog server; SIGTERM or Ctrl-C stops it; kafkalog health "
                "asks a running one; a setting is --override KEY=VALUE"
            )
        else:
            continue
        message = f"{word} is no file: kafkalog server takes properties files; {remedy}"
        raise click.UsageError(message)


def _serve(settings: Settings) -> int:
    """Configure the process, then run the loop. Returns the exit status."""
    if not __debug__:
        raise click.ClickException("python -O removes the checks that keep data safe; run without.")
    gc.disable()  # the daemon collects once it has loaded; imports leave little to find
    import structlog
    import uvloop

    from kafkalog import kernels
    from kafkalog.env.process_facts import keep_freed_memory
    from kafkalog.env.systemd import ServiceManager
    from kafkalog.format.control_characters import escaped
    from kafkalog.observe.logging import configure_logging
    from kafkalog.observe.terminal_line import TerminalLine
    from kafkalog.server.daemon import Daemon

    line = TerminalLine(sys.stderr) if sys.stderr.isatty() else None
    configure_logging(
        sys.stdout,
        log_format=settings.server.log_format,
        level=settings.server.log_level,
        above=line,
    )
    log = structlog.get_logger("kafkalog")
    for notice in settings.notices:
        getattr(log, notice.level)(notice.message)
    log.info("Configuration; what is not named has its default", given=settings.effective)
    if settings.has_default_log_dir:
        log.info(
            "log.dirs is not set; data goes to this directory", log_dir=settings.broker.log_dirs[0]
        )
        warn_of_overlooked_data(settings)
    if not keep_freed_memory():
        log.info("This C library cannot keep freed memory; large requests cost more")
    warm = kernels.warm_up(functools.partial(_show_compiling, line, log))
    log.info("Kernels are ready", compiled=warm.compiled, cached=warm.cached, image=warm.image)
    daemon = Daemon(
        settings=settings,
        build=lambda sink, give_up: _build(settings, sink, give_up),
        request_id_prefix=os.urandom(4).hex(),
        service_manager=ServiceManager.of(os.environ),
        terminal_line=line,
    )
    try:
        return uvloop.run(daemon.run())
    except KafkalogError as error:
        reason, status = error.message, 1
        if isinstance(error, UnusableLogDirs):
            status = UNUSABLE_LOG_DIRS_EXIT
    except OSError as error:
        reason, status = sentence_of(error), 1
    log.error("Cannot start", reason=reason)
    if line is not None:  # the last thing on the screen
        line.write_above(f"Error: {escaped(reason)}\n")
    return status


def warn_of_overlooked_data(settings: Settings) -> None:
    """Records in another default directory are not served, which looks like their loss."""
    import structlog

    overlooked = settings.overlooked_log_dirs(os.path.exists)
    if overlooked:
        structlog.get_logger("kafkalog").warning(
            "log.dirs is not set, and another default directory holds data that is not served",
            log_dir=settings.broker.log_dirs[0],
            not_served=overlooked,
            remedy=f"Set log.dirs={overlooked[0]} to serve it, or another value to serve that.",
        )


def _check_write_access(settings: Settings) -> list[AccessFault]:
    """Log how to get it where it is missing; what is left of the directories decides the start.

    Blocks on the disks: part of the load, so that one that hangs is seen from outside.
    """
    import structlog

    from kafkalog.env.process_facts import write_access_fault

    faults = []
    for log_dir in settings.broker.log_dirs:
        fault = write_access_fault(log_dir)
        if fault is not None:
            faults.append(fault)
            structlog.get_logger("kafkalog").error(
                "No write access to log directory", log_dir=log_dir, **dataclasses.asdict(fault)
            )
    return faults


def _show_compiling(
    line: TerminalLine | None, log: structlog.stdlib.BoundLogger, module: str, done: int, total: int
) -> None:
    """Progress of ``kernels.warm_up``, where it may take a minute."""
    from kafkalog.kernels.compile import IS_COMPILING

    if not IS_COMPILING:
        return
    if done == 0:
        log.info("No compiled kernels of this version; a start compiles them once")
    if line is not None:
        line.show(f"Compiling kernels: {done}/{total} modules" if module else "")


def _build(settings: Settings, sink: CompletionSink, give_up: Callable[[], None]) -> Graph:
    """Everything below the HTTP edge; its ``load`` is the first to touch the disk."""
    import structlog

    from kafkalog.broker.log_manager import LogManager
    from kafkalog.broker.operations import Operations
    from kafkalog.broker.runtime import Runtime
    from kafkalog.env.clock import SystemClock
    from kafkalog.env.process_facts import process_io
    from kafkalog.env.random import SystemRandom
    from kafkalog.env.system_filesystem import SystemFilesystem
    from kafkalog.env.system_scheduler import SystemScheduler
    from kafkalog.env.system_threads import SystemThreads
    from kafkalog.observe.metrics import Metrics
    from kafkalog.server.daemon import Graph

    log = structlog.get_logger("kafkalog")

    def thread_failed(name: str, error: BaseException) -> None:
        log.critical("A thread died of a defect; the daemon ends", thread=name, exc_info=error)
        os._exit(70)  # a directory without its writer must not look alive

    def task_failed(name: str, error: BaseException) -> None:
        fault = error if isinstance(error, KafkalogError) else None
        if fault is not None and fault.already_logged:
            return
        log.error(
            "A task failed and keeps its schedule",
            task=name,
            reason=str(error),
            exc_info=error if fault is None else None,  # of a defect of ours, where matters
        )

    clock, threads = SystemClock(), SystemThreads(thread_failed)
    scheduler = SystemScheduler(clock, threads, settings.broker.background_threads, task_failed)
    metrics = Metrics(with_process=True)
    metrics.build_info.labels(__version__, platform.python_version(), "1").set(1)
    metrics.config_info.labels(settings.digest).set(1)
    metrics.process_io = process_io
    config, random = _within_descriptors(settings.broker), SystemRandom()
    runtime = Runtime(SystemFilesystem(), clock, scheduler, random, threads, metrics, config)
    manager = LogManager(settings, runtime, sink, give_up)
    operations = Operations(manager)

    def load() -> None:
        faults = _check_write_access(settings)
        scheduler.startup()
        try:
            manager.startup()
        except BaseException as error:
            scheduler.shutdown()
            if faults and isinstance(error, LogDirOffline):  # no directory is left
                raise LogDirOffline(" ".join((error.message, *map(str, faults)))) from error
            raise

    def close() -> None:
        manager.shutdown()
        scheduler.shutdown()

    return Graph(operations, metrics, load, manager.stop_loading, close)


def _within_descriptors(config: BrokerConfig) -> BrokerConfig:
    """Raise the process's limit as far as it goes, then keep to it."""
    import structlog

    from kafkalog.env.process_facts import raise_descriptor_limit

    limit = raise_descriptor_limit()
    bounded = config.within_descriptors(limit)
    if bounded != config:
        structlog.get_logger("kafkalog").warning(
            "The limit of open descriptors is low for log.dir.max.open.files",
            limit=limit,
            files_kept_open=bounded.log_dir_max_open_files,
            remedy="Allow more open files (ulimit -n): what was closed is opened anew, at a cost.",
        )
    return bounded


def root_command() -> click.Group:
    """The whole tree."""
    cli = make_cli()
    cli.add_command(server)
    return cli


def main() -> None:
    """The ``kafkalog`` command."""
    for name in ("stdout", "stderr"):  # closed by a shell (>&-): as if it were /dev/null
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - to the end
    try:
        root_command()(prog_name=PROGRAM)
    except KeyboardInterrupt:  # before the first command or after the last
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
