"""Goal: every file of a log directory has its Kafka name and is recognised again.
Method: tables of names, refused names, and a round trip over all offsets and suffixes.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.disk import file_names
from kafkalog.format.disk.file_names import SegmentFileName, parse_segment_file, segment_file_name
from kafkalog.format.integers import FormatError

SUFFIXES = (*file_names.SEGMENT_SUFFIXES, file_names.SNAPSHOT_SUFFIX)


def test_names_have_twenty_digits() -> None:
    """M02: base names are zero-padded to twenty digits."""
    assert segment_file_name(0, ".log") == "00000000000000000000.log"
    assert (
        segment_file_name(42, ".timeindex", ".deleted") == "00000000000000000042.timeindex.deleted"
    )
    assert segment_file_name(2**63 - 1, ".log") == "09223372036854775807.log"


@given(
    st.integers(0, 2**63 - 1),
    st.sampled_from(SUFFIXES),
    st.sampled_from(("", *file_names.STAGE_SUFFIXES)),
)
def test_names_round_trip(offset: int, suffix: str, stage: str) -> None:
    parsed = parse_segment_file(segment_file_name(offset, suffix, stage))
    assert parsed == SegmentFileName(offset, suffix, stage)


@pytest.mark.parametrize(
    "name",
    [
        "leader-epoch-checkpoint",
        "leader-epoch-checkpoint.tmp",
        "partition.metadata",
        "00000000000000000000-0000000000.checkpoint",
        "00000000000000000000.log.bak",
        ".lock",
        "",
    ],
)
def test_other_files_are_not_segments(name: str) -> None:
    assert parse_segment_file(name) is None


@pytest.mark.parametrize(
    "name", ["x.log", ".log", "-1.index", "1_0.log", "9" * 20 + ".log", "١.log"]
)
def test_a_segment_file_without_an_offset_is_refused(name: str) -> None:
    with pytest.raises(FormatError, match="does not start with an offset"):
        parse_segment_file(name)


@pytest.mark.parametrize(
    "name", ["123.log", "0" * 18 + "123.log", "0" * 20 + "7.index", "7.log.swap", "7.snapshot"]
)
def test_another_number_of_digits_is_no_name_of_a_segment(name: str) -> None:
    """M02: else a stray file stands for a segment whose files nobody has."""
    with pytest.raises(FormatError, match="twenty digits"):
        parse_segment_file(name)


def test_the_offset_is_what_stands_before_the_first_dot() -> None:
    assert file_names.offset_of_file("00000000000000000007.index.cleaned.whatever") == 7
    assert file_names.offset_of_file("7.log") == 7


def test_siblings_share_directory_and_offset() -> None:
    assert file_names.sibling("a.b/07.timeindex", ".log") == "a.b/07.log"
    assert file_names.sibling("07.log.deleted", ".index") == "07.index"
