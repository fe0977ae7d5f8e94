"""One JVM for many of Kafka's programs: a start takes more than most of them (`OneJvm.java`)."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.oracle.kafka import Output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.oracle.kafka import Kafka

HERE = Path(__file__).parent
SOURCES = [HERE / name for name in ("OneJvm.java", "LoadMany.java", "CompactMany.java")]
DUMP = "kafka.tools.DumpLogSegments"


class OneJvm:
    """Runs one program after another; AssertionError when one throws."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, program: str, *arguments: str, stdin: str = "") -> Output:
        """The main method of a class, and what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"class": program, "arguments": arguments, "stdin": stdin}
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the JVM ended in {program}"
        answer = json.loads(line)
        assert answer["error"] is None, answer
        return Output(answer["stdout"], answer["stderr"], 0)

    def answers(self, program: str, questions: Sequence[object]) -> list[Any]:
        """LoadMany or CompactMany: a result for each question."""
        text = "".join(json.dumps(each) + "\n" for each in questions)
        return self.run(program, "stay", stdin=text).json_lines()


@contextmanager
def jvm_on_pipes(
    home: Path, class_path: str, sources: Iterable[Path], main: str, *settings: str
) -> Iterator[subprocess.Popen[str]]:
    """Compile the programs and start ``main`` in a JVM, which ends when its input does."""
    compile_ = ["javac", "-nowarn", "-Xlint:none", "-cp", class_path, "-d", str(home)]
    subprocess.run([*compile_, *map(str, sources)], check=True, capture_output=True, timeout=300)
    flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *settings]
    with (home / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            ["java", *flags, "-cp", f"{home}:{class_path}", main],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            encoding="utf-8",
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        try:
            yield process
        finally:
            process.communicate(timeout=60)


@contextmanager
def one_jvm(kafka: Kafka, home: Path) -> Iterator[OneJvm]:
    """Compile the programs and start the JVM, which ends with the block."""
    class_path = kafka.run("classpath").stdout.strip()
    settings = f"-Dlog4j2.configurationFile={class_path.split(':')[0]}/../log4j2-tool.properties"
    level = "-Doracle.level=WARN"
    with jvm_on_pipes(home, class_path, SOURCES, "OneJvm", settings, level) as process:
        yield OneJvm(process)
