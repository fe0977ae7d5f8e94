"""Goal: our log lines have Kafka's words, those of the version that the kit has.
Method: the texts in Kafka's class files, their places cut out, against what our functions print.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.log import kafka_messages
from tests.cleaner_world import CleanerWorld, one, segments_of
from tests.log_world import LogWorld

if TYPE_CHECKING:
    from tests.oracle.kafka import Kafka

pytestmark = pytest.mark.oracle

_PACKAGE = "org/apache/kafka/storage/internals/log"
_TAG_UTF8 = 1
# Size of what follows each other tag of a constant pool; long and double take two entries.
_TAG_BYTES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2}
_TAG_BYTES |= {17: 4, 18: 4, 19: 2, 20: 2}
_TWO_ENTRIES = (5, 6)
_PLACE = re.compile(r"\{\}|\x01|%,?[.\d]*[dsf]|%%|%n")


def texts_of(class_file: bytes) -> set[str]:
    """The constants of a class that are text (JVM specification, 4.4)."""
    found, position, entry = set(), 10, 1
    while entry < int.from_bytes(class_file[8:10], "big"):
        tag = class_file[position]
        if tag == _TAG_UTF8:
            size = int.from_bytes(class_file[position + 1 : position + 3], "big")
            data = class_file[position + 3 : position + 3 + size]
            found.add(data.decode("utf-8", "surrogateescape"))
            position += 3 + size
        else:
            position += 1 + _TAG_BYTES[tag]
            entry += tag in _TWO_ENTRIES
        entry += 1
    return found


@pytest.fixture(scope="module")
def texts(kafka: Kafka) -> set[str]:
    """Of the classes that log what we log."""
    jars = kafka.run("classpath").stdout.strip().split(":")[-1].rstrip("*")
    storage = next(Path(jars).glob("kafka-storage-4*.jar"))
    with zipfile.ZipFile(storage) as jar:
        names = (
            *("UnifiedLog", "LocalLog", "LogSegment", "LogStartOffsetIncrementReason"),
            "Cleaner",
        )
        found = set().union(*(texts_of(jar.read(f"{_PACKAGE}/{name}.class")) for name in names))
    with zipfile.ZipFile(next(Path(jars).glob("kafka_2*.jar"))) as jar:
        return found | texts_of(jar.read("kafka/log/LogManager.class"))


def test_every_sentence(texts: set[str]) -> None:
    """A line of ours is one of Kafka's with something in its places."""
    segment = LogWorld().new_segment(5)
    name = segment.description()
    log = CleanerWorld(segments_of([one(0, b"k")])).log
    lines = [
        name,
        kafka_messages.rolled(5, 1),
        kafka_messages.start_moved(5, "segment deletion"),
        kafka_messages.below_start([name], 9),
        kafka_messages.over_size(name, 1, 0),
        kafka_messages.over_time(name, 1, has_timestamp=True),
        kafka_messages.empty_segment_rolled(5, 5, 5, timed=0, indexed=0),
        kafka_messages.empty_segment_recreated(5, "log roll"),
        kafka_messages.collecting("t-0"),
        kafka_messages.cleaning_begins("t-0"),
        kafka_messages.map_begins("t-0", 1, 0, 5),
        kafka_messages.map_is_full(0, 5),
        kafka_messages.map_complete("t-0"),
        kafka_messages.copy_begins("t-0", 0, 0),
        kafka_messages.segment_cleaned(name, "t-0", 5, delete_horizon_ms=0, modified_ms=1),
        kafka_messages.swapping(name, [name], log.description()),
    ]
    patterns = [
        re.compile(".+".join(map(re.escape, _PLACE.split(text))))
        for text in texts
        if len(_PLACE.split(text)) > 1 and len(text) > 20
    ]
    for line in lines:
        assert any(pattern.fullmatch(line) for pattern in patterns), line
    files = kafka_messages.files_deleted([name])
    assert any(text == "{}Deleting segment files {}" for text in texts)
    assert files == f"Deleting segment files {name}"
    assert kafka_messages.cleanup_begins() in texts
    reasons = {"leader offset increment", "segment deletion", "client delete records request"}
    assert reasons <= texts
