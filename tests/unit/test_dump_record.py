"""Goal: one record prints as Kafka's tool prints it, whatever its bytes are.
Method: line forms of the reference; replacement characters counted by a real Java.
"""

from __future__ import annotations

import pytest

from kafkalog.cli.offline.dump import record_line
from kafkalog.format.integers import FormatError
from kafkalog.format.records.record import Record


def line(record: Record, *, is_control: bool = False, metadata: bool = True) -> str:
    return record_line(
        record,
        timestamp_label="CreateTime",
        is_control=is_control,
        with_metadata=metadata,
        with_contents=True,
    )


@pytest.mark.parametrize(
    ("data", "replacements"),
    [
        ("c080", 2),
        ("eda080", 1),
        ("edbfbf", 1),
        ("eda0", 1),
        ("ed", 1),
        ("eda0ed", 2),
        ("f4908080", 4),
        ("f0808080", 4),
        ("f09f98", 1),
        ("f1edbf", 2),
        ("9ff5f4eda0f3", 5),
        ("eda08fe1f1", 3),
        ("e282", 1),
        ("ff", 1),
    ],
)
def test_broken_utf8_is_replaced_as_java_does(data: str, replacements: int) -> None:
    printed = line(Record(0, 0, bytes.fromhex(data), None), metadata=False)
    assert printed == "| key: " + "\N{REPLACEMENT CHARACTER}" * replacements


def test_all_fields_in_order() -> None:
    record = Record(9, 5, b"k", b"", ((b"a", None), ("ü".encode(), b"x")), 4)
    assert line(record) == (
        "| offset: 9 CreateTime: 5 keySize: 1 valueSize: 0 sequence: 4 headerKeys: [a,ü] "
        "key: k payload: "
    )
    assert line(record, metadata=False) == "| key: k payload: "


def test_without_key_and_metadata_there_is_no_bar() -> None:
    """Kafka 4.1 prints it so; 4.3 does not."""
    assert line(Record(0, 0, None, b"v3"), metadata=False) == " payload: v3"
    assert line(Record(0, 0, None, None), metadata=False) == ""


def test_control_records() -> None:
    marker = Record(1, 5, bytes.fromhex("00000001"), bytes.fromhex("000000000007"))
    assert line(marker, is_control=True).endswith(" endTxnMarker: COMMIT coordinatorEpoch: 7")
    assert line(marker, is_control=True, metadata=False) == ""
    unknown = Record(1, 5, bytes.fromhex("00000063"), None)
    assert line(unknown, is_control=True).endswith(" controlType: UNKNOWN(99)")
    with pytest.raises(FormatError):
        line(Record(1, 5, b"", None), is_control=True)
