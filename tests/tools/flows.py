"""Which files run on each flow of a real daemon: ``python -m tests.tools.flows``.

A flow leads through a file when code there calls another file of the package: a reader who follows
the flow has to open it. The other files that run are ends: a clock, a value, a counter, whose name
says enough.

What is counted is the way of the work through kafkalog's own layers: server, broker, cleaner, log,
format, observe, settings. The rings that every flow stands on are shown and not counted: ``env``,
which is the operating system behind a Protocol, and ``kernels``, compiled loops that call one
another inside one machine-code function and are entered at one place.

Each flow runs a few times in a process whose calls are traced. The files of a flow are those that
ran every time; that leaves out what the daemon did beside it. Kernels run as plain Python
(``NUMBA_DISABLE_JIT``), because a compiled one makes no call that could be traced. What the first
round imports, and what a start builds before it loads, is no part of a flow.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = f"{ROOT / 'kafkalog'}/"
ROUNDS = 6
WAIT_SECONDS = 60.0
TOPIC = "flow-of-requests"
JSON = "application/json"
JSON_RECORDS = "application/vnd.kafka.json.v2+json"
RETENTION_TASK = "kafka-log-retention"
DELETION_TASK = "delete-file"
# A topic is looked up where one of these gets its name from another file.
LOOK_UP_FILES = ("broker/catalog.py", "broker/log_manager.py", "broker/topics/registry.py")
PLAN_FILE = "log/retention/plan.py"
NOT_COUNTED = ("env/", "kernels/")  # see the module
# What the event loop calls back was called by nobody: below it is only the program's start.
_NO_CALLERS = ("__main__.py", "__init__.py")
PATH_CUTS = frozenset({"split", "rsplit", "partition", "rpartition", "rfind", "rindex"})


@dataclasses.dataclass
class Trace:
    """What ran during one round of a flow; each call is named by its caller and itself."""

    files: list[str] = dataclasses.field(default_factory=list)  # in order of the first call
    callers: list[str] = dataclasses.field(default_factory=list)  # that the flow leads through
    topic_look_ups: list[str] = dataclasses.field(default_factory=list)
    plans: list[str] = dataclasses.field(default_factory=list)
    path_cuts: list[str] = dataclasses.field(default_factory=list)

    @property
    def counted(self) -> list[str]:
        """Files of the layers that count, see the module."""
        return [name for name in self.callers if not name.startswith(NOT_COUNTED)]


_BEAT_DEPTH = 4  # calls from where a heartbeat begins to its gauge


class Recorder:
    """Traces the threads of this process while it records."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._trace: Trace | None = None
        self._seen: set[str] = set()
        self._threads: tuple[str, ...] = ()
        self._until: str | None = None

    def install(self) -> None:
        """Trace the calling thread and all that start later."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    @contextmanager
    def recording(self, *threads: str, until: str | None = None) -> Iterator[Trace]:
        """A round; only what runs on threads whose names begin so, before a call into ``until``."""
        self._seen, self._threads, self._until = set(), threads, until
        self._trace = trace = Trace()
        try:
            yield trace
        finally:
            self._trace = None

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        trace = self._trace
        if trace is None or event not in ("call", "c_call"):
            return
        path = frame.f_code.co_filename
        if event == "c_call":
            self._note_cut(trace, frame, argument)
        elif path.startswith(PACKAGE) and _runs_on(self._threads):
            if _is_beside(frame):
                return
            name = path.removeprefix(PACKAGE)
            if self._until is not None and name.startswith(self._until):
                self._trace = None
                return
            if name not in self._seen and not name.endswith("__init__.py"):
                self._seen.add(name)
                trace.files.append(name)
            self._note_call(trace, frame, name)

    def _note_call(self, trace: Trace, frame: FrameType, name: str) -> None:
        caller = _nearest(frame.f_back)
        if caller and caller not in (name, *trace.callers) and not caller.endswith(_NO_CALLERS):
            trace.callers.append(caller)
        call = f"{caller} -> {name}:{frame.f_code.co_name}"
        if name == PLAN_FILE and frame.f_code.co_name == "plan" and caller != PLAN_FILE:
            trace.plans.append(call)
        if name in LOOK_UP_FILES and caller not in LOOK_UP_FILES:
            count = frame.f_code.co_argcount
            names = frame.f_code.co_varnames[:count]
            if any(frame.f_locals.get(each) == TOPIC for each in names):
                trace.topic_look_ups.append(call)

    def _note_cut(self, trace: Trace, frame: FrameType, argument: Any) -> None:
        """A path is cut apart by a method of its text, whoever calls it."""
        if argument.__name__ not in PATH_CUTS or not _runs_on(self._threads):
            return
        text = getattr(argument, "__self__", None)
        if isinstance(text, str) and text.startswith(self._directory):
            trace.path_cuts.append(f"{_nearest(frame)} -> {argument.__name__}")


def _is_beside(frame: FrameType) -> bool:
    """An object that the interpreter drops, or a heartbeat: not in each round."""
    level: FrameType | None = frame
    for _ in range(_BEAT_DEPTH):
        if level is None:
            break
        if level.f_code.co_name in ("__del__", "_beat", "beat"):
            return True
        level = level.f_back
    return False


def _runs_on(threads: Sequence[str]) -> bool:
    return threading.current_thread().name.startswith(tuple(threads))


def _nearest(frame: FrameType | None) -> str:
    """The file of the package whose code the frame runs, or the nearest one that called it."""
    while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename.removeprefix(PACKAGE)


class Client:
    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)

    def ask(self, method: str, path: str, body: object = None, media_type: str = JSON) -> bytes:
        """The body of the answer; asks again while the log is still owned by the last round."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": media_type}
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
            content = answer.read()
            if answer.status != HTTPStatus.CONFLICT or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        assert answer.status < 300, (method, path, answer.status, content)
        return content

    def make_topic(self, name: str, **configs: str) -> None:
        """With one partition; config names with underscores."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        topic = {"topic_name": name, "partitions_count": 1, "configs": named}
        self.ask("POST", "/admin/topics", topic)

    def produce(self, topic: str, *values: str, key: str | None = None) -> None:
        """A JSON record each."""
        records = [{"key": key, "value": value} for value in values]
        self.ask("POST", f"/topics/{topic}", {"records": records}, JSON_RECORDS)


class Daemon:
    """The daemon of this process: its port, the tasks that it scheduled, its directory."""

    def __init__(self, directory: str, recorder: Recorder) -> None:
        self.recorder = recorder
        self.directory = directory
        self.port = 0
        self.is_ready = threading.Event()
        self.load_trace = Trace()
        self.tasks: dict[str, Callable[[], None]] = {}
        self.finished: list[str] = []

    def run(self) -> None:
        """On the main thread, as the command ``kafkalog server`` does; never returns."""
        from kafkalog import __main__ as program
        from kafkalog.env.system_scheduler import SystemScheduler
        from kafkalog.server import daemon as server_daemon

        patched: Any = SystemScheduler
        life: Any = server_daemon
        build, listen = program._build, life.open_listeners
        schedule_periodic = patched.schedule_periodic
        schedule_once = patched.schedule_once

        def build_traced(*arguments: Any) -> Any:
            graph = build(*arguments)

            def load() -> None:
                with self.recorder.recording("control", "log-recovery", "log-dir") as trace:
                    graph.load()
                self.load_trace = trace

            return dataclasses.replace(graph, load=load)

        def note_task(scheduler: Any, name: str, task: Any, *times: int) -> Any:
            self.tasks[name] = task
            return schedule_periodic(scheduler, name, task, *times)

        def note_end(scheduler: Any, name: str, task: Any, delay_ms: int = 0) -> Any:
            def body() -> None:
                task()
                self.finished.append(name)

            return schedule_once(scheduler, name, body, delay_ms)

        async def note_port(*arguments: Any) -> Any:
            listeners = await listen(*arguments)
            self.port = listeners[0].port
            return listeners

        vars(program)["_build"] = build_traced
        vars(life)["open_listeners"] = note_port
        patched.schedule_periodic, patched.schedule_once = note_task, note_end
        overrides = {
            "log.dirs": self.directory,
            "http.port": "0",
            "log.level": "error",
            "log.initial.task.delay.ms": "3600000",  # no periodic task runs beside the flows
        }
        pairs = [part for item in overrides.items() for part in ("--override", "=".join(item))]
        program.root_command()(["server", *pairs])

    def client(self) -> Client:
        """When it is ready."""
        _wait_until(lambda: self.port > 0)
        client = Client(self.port)
        _wait_until(lambda: _is_ready(client))
        return client


def _is_ready(client: Client) -> bool:
    try:
        client.ask("GET", "/readyz")
    except AssertionError:
        return False
    return True


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


_REST_SECONDS = 0.02  # what the loop does of a request behind its answer
_REQUEST_THREADS = ("MainThread", "log-dir", "control", "reader")


def produce_json(daemon: Daemon, client: Client) -> Trace:
    """``POST /topics/{topic}``, until the answer is there."""
    with daemon.recorder.recording(*_REQUEST_THREADS) as trace:
        client.produce(TOPIC, "value")
        time.sleep(_REST_SECONDS)
    return trace


def fetch_raw(daemon: Daemon, client: Client) -> Trace:
    """``GET`` of batches that are there, and are large enough to be remembered as checked."""
    with daemon.recorder.recording(*_REQUEST_THREADS) as trace:
        client.ask("GET", f"/v1/topics/{TOPIC}/partitions/0/batches?offset=0&max_bytes=1")
        time.sleep(_REST_SECONDS)
    return trace


def retain(daemon: Daemon, client: Client) -> Trace:
    """The check of one log whose records are all too old, until their files are deleted."""
    client.produce("flow-of-retention", "value")
    time.sleep(0.02)  # older than retention.ms
    daemon.finished.clear()
    with daemon.recorder.recording("driver", "log-dir", "scheduler") as trace:
        daemon.tasks[RETENTION_TASK]()
        _wait_until(lambda: DELETION_TASK in daemon.finished)
    return trace


def compact(daemon: Daemon, client: Client) -> Trace:
    """A clean of one log that removes a record, until its thread answers the request."""
    partition = "/v1/topics/flow-of-compaction/partitions/0"
    client.produce("flow-of-compaction", "old", "new", key="same")
    client.ask("POST", f"{partition}/log:roll")
    with daemon.recorder.recording("kafka-log-cleaner", "log-dir", until="server/") as trace:
        client.ask("POST", f"{partition}/log:clean", {})
    return trace


ROUNDS_OF: dict[str, Callable[[Daemon, Client], Trace]] = {
    "JSON produce": produce_json,
    "raw fetch": fetch_raw,
    "retention check": retain,
    "compaction": compact,
}
START = "start after a crash"
FLOWS = (*ROUNDS_OF, START)


def _drive(daemon: Daemon, *, is_restart: bool) -> None:
    """Run every flow, print the traces, and end the process as a crash does."""
    traces: dict[str, list[Trace]] = {}
    try:
        client = daemon.client()
        if is_restart:
            traces[START] = [daemon.load_trace]
        else:
            client.make_topic(TOPIC)
            client.produce(TOPIC, "v" * 8192)
            client.make_topic("flow-of-retention", retention_ms="1", file_delete_delay_ms="0")
            client.make_topic("flow-of-compaction", cleanup_policy="compact")
            for name, flow in ROUNDS_OF.items():
                flow(daemon, client)  # imports what it needs
                traces[name] = [flow(daemon, client) for _ in range(ROUNDS)]
        found = {name: list(map(dataclasses.asdict, rounds)) for name, rounds in traces.items()}
        sys.stdout.write(json.dumps(found))
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(1)


def _run_here(directory: str, *, is_restart: bool) -> None:
    """What the traced process does: ``flows.py <directory> first|second``."""
    recorder = Recorder(directory)
    recorder.install()
    daemon = Daemon(directory, recorder)
    threading.Thread(
        target=lambda: _drive(daemon, is_restart=is_restart), name="driver", daemon=True
    ).start()
    daemon.run()


def trace_flows(directory: Path) -> dict[str, Trace]:
    """Trace each flow; of its rounds the files that all have, and the calls of the longest."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    found: dict[str, Trace] = {}
    for life in ("first", "second"):
        command = [sys.executable, "-m", "tests.tools.flows", str(directory), life]
        run = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
        for name, rounds in json.loads(run.stdout.splitlines()[-1]).items():
            found[name] = _merged([Trace(**each) for each in rounds])
    return found


def _merged(rounds: list[Trace]) -> Trace:
    def common(lists: list[list[str]]) -> list[str]:
        return [name for name in lists[0] if all(name in each for each in lists)]

    return Trace(
        common([each.files for each in rounds]),
        common([each.callers for each in rounds]),
        max((each.topic_look_ups for each in rounds), key=len),
        max((each.plans for each in rounds), key=len),
        max((each.path_cuts for each in rounds), key=len),
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for name, trace in trace_flows(Path(directory)).items():
            count = f"through {len(trace.counted)} of {len(trace.files)} files"
            sys.stdout.write(f"{name}: {count}, marked with >; - leads on and is not counted\n")
            for each in trace.files:
                mark = ">" if each in trace.counted else "-" if each in trace.callers else " "
                sys.stdout.write(f"  {mark} {each}\n")
            for title in ("topic_look_ups", "plans", "path_cuts"):
                calls = getattr(trace, title)
                sys.stdout.writelines(f"  {title}: {call}\n" for call in calls)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _run_here(sys.argv[1], is_restart=sys.argv[2] == "second")
    else:
        main()
