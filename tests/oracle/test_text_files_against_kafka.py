"""Goal: checkpoints and `.properties` mean to us exactly what they mean to Kafka and to Java.
Method: corner cases and thousands of random texts of the formats' own signs, read by both sides.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.format.disk.checkpoints import decode_leader_epochs, decode_offsets
from kafkalog.format.disk.properties import decode_properties, encode_properties
from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.oracle.kafka import Kafka

pytestmark = pytest.mark.oracle

SOURCE = Path(__file__).with_name("TextFiles.java")
COUNT = 4000
OFFSETS = [b"0\n2\nt 0 5\nu-1 12 9223372036854775807\n", b"0\n1\nt 00 +5\n", b"0\n0\n"]
EPOCHS = [b"0\n2\n0 0\n7 3000000\n", b"0\n1\n2147483647 -1\n", b"0\n0\n"]
PROPERTIES = [
    b"#\n#Fri Nov 20 23:29:09 UTC 2026\ncluster.id=abc\nversion=1\n",
    b"a = b \\\n   c\n! no\nd\\:e\\=f : g\\u00e4\\t\n",
    b"a\\\r\n\tb\\\n\nc=\\\\\\\n# d\n",
]
SIGNS = {
    "offsets": b"0123 \n\n\r\t\v\f+-.tu\x00x\xc3\xa4\xff",
    "epochs": b"0123 \n\n\r\t\v\f+-.tu\x00x\xc3\xa4\xff",
    "properties": b"ab=: \\\\\\\n\n\r\t\f\v#!u0aF9z\x00\x1c\x85\xa0\xe4\xff",
}


def texts(kind: str, seeds: list[bytes]) -> list[bytes]:
    """The seeds, their damaged copies and random strings."""
    chance, signs = random.Random(kind), SIGNS[kind]
    found = [b"", *seeds]
    while len(found) < COUNT:
        data = bytearray(chance.choice(seeds))
        if chance.random() < 0.3:
            data = bytearray(chance.choices(signs, k=chance.randrange(30)))
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(data) + 1)
            data[at : at + chance.randrange(3)] = chance.choices(signs, k=chance.randrange(3))
        found.append(bytes(data))
    return found


def asked(kafka: Kafka, lines: list[str]) -> list[list[str]]:
    """The words of each answer; one JVM."""
    class_path = kafka.run("classpath").stdout.strip()
    stdin = "".join(f"{line}\n" for line in lines)
    environment = {"KAFKALOG_ORACLE_LEVEL": "OFF"}
    output = kafka.run("java", "-cp", class_path, str(SOURCE), stdin=stdin, environment=environment)
    answers = [line.split(" ") for line in output.lines()]
    assert len(answers) == len(lines)
    return answers


def wide(text: str) -> str:
    """As TextFiles prints it."""
    return text.encode("utf-16-be", "surrogatepass").hex()


def offsets_read(data: bytes) -> list[str]:
    return [f"{wide(tp.topic)}:{tp.partition}:{at}" for tp, at in decode_offsets(data).items()]


def epochs_read(data: bytes) -> list[str]:
    return [f"{epoch}:{start}" for epoch, start in decode_leader_epochs(data)]


def properties_read(data: bytes) -> list[str]:
    return [f"{wide(key)}={wide(value)}" for key, value in decode_properties(data).items()]


@pytest.mark.parametrize(
    ("kind", "seeds", "read"),
    [
        ("offsets", OFFSETS, offsets_read),
        ("epochs", EPOCHS, epochs_read),
        ("properties", PROPERTIES, properties_read),
    ],
)
def test_both_read_the_same(
    kafka: Kafka, kind: str, seeds: list[bytes], read: Callable[[bytes], list[str]]
) -> None:
    """M02: the same entries, or refused by both."""
    cases = texts(kind, seeds)
    refused = 0
    for data, answer in zip(
        cases, asked(kafka, [f"{kind} {data.hex()}" for data in cases]), strict=True
    ):
        try:
            ours = ["ok", *sorted(read(data))]
        except FormatError:
            ours = ["refused"]
            refused += 1
        assert ours == ([answer[0], *sorted(answer[1:])] if answer[0] == "ok" else ["refused"]), (
            data,
            answer,
        )
    assert 0 < refused < COUNT


def test_both_write_the_same_properties(kafka: Kafka) -> None:
    """M02: every ASCII sign, blanks at both ends, what Java escapes; one pair a file."""
    signs = [chr(code) for code in range(0x180)] + ["\u2028", "\ud7ff", "\ue000", "😀"]
    pairs = [(f"k{sign}", f"{sign}v {sign}") for sign in signs] + [("", ""), ("  a ", "  b ")]
    answers = asked(kafka, [f"store {wide(key)} {wide(value)}" for key, value in pairs])
    for (key, value), (status, written) in zip(pairs, answers, strict=True):
        assert status == "ok"
        date, _, stored = bytes.fromhex(written).partition(b"\n")
        assert date.startswith(b"#")
        assert stored == encode_properties({key: value}), (key, value)
        assert decode_properties(stored) == {key: value}
