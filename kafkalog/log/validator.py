"""What a broker checks and changes in record batches before they may be appended.

Pure functions for any thread: bytes and configuration in, ``ValidatedRecords`` or an error out, so
the edge runs them in its pool, away from the writer thread. Rules that need the state of the log
(sequences, epochs, segment size, expected offset) belong to ``UnifiedLog.append``. Source: Kafka
4.1 LogValidator, UnifiedLog.analyzeAndValidateRecords.

Per batch: header, CRC-32C, one kernel call over the (inflated) records; Python runs per record only
to name the records of a refused batch. Differs from Kafka: several batches back to back are taken
unless ``allow_many`` is False; bytes after the last whole batch of a client are refused (Kafka
drops them); an uncompressed batch whose offset deltas are not 0, 1, 2 ... is refused (Kafka stores
it with overlapping offsets).

Batches that ``format/records/batch_builder`` has just made take a shorter way: it proves from the
builder's facts that ``validate`` would neither refuse nor change the batch, and passes it to
``validate`` in every other case.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.errors import (
    BadBatchCrc,
    InvalidRecord,
    InvalidTimestamp,
    NullKey,
    RecordBatchTooLarge,
    UnsupportedCompression,
)
from kafkalog.format.integers import INT64_MAX, INT64_MIN
from kafkalog.format.records.compression import compress, decompress
from kafkalog.format.records.control_record import read_batch_marker
from kafkalog.format.records.record import renumber_records
from kafkalog.format.records.record_batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    MalformedBatch,
    TimestampType,
    codec_of,
    compute_crc,
    encode_header,
    is_control,
    is_crc_valid,
    read_header,
    timestamp_type_of,
    unpack_header,
    with_log_append_time,
    with_max_timestamp,
)
from kafkalog.kernels.records.record_scan import (
    RECORD_COLUMN_COUNT,
    RECORD_FACT_COUNT,
    RecordColumn,
    RecordFact,
    fault_of,
    scan_records,
    validate_records,
)
from kafkalog.kernels.records.usual_batch import SMALL_BATCH_BYTES, is_usual_batch
from kafkalog.log.values import AppendOrigin, BatchFacts, ValidatedRecords

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from kafkalog.format.records.batch_builder import BuiltBatch
    from kafkalog.log.log_config import LogConfig


SHOWN_ERRORS = 3
_NO_KEY = "Compacted topic cannot accept message without key."
_CODEC_BITS, _TIMESTAMP_TYPE_BIT = 0x07, 0x08
_KEEPS_PLAIN = ("producer", "uncompressed")
_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True)
class _Topic:
    """What the rules ask of the topic, once per call."""

    config: LogConfig
    now_ms: int
    origin: AppendOrigin
    max_decompressed_bytes: int
    timestamp_type: TimestampType


def validate(
    records: bytes | memoryview,
    config: LogConfig,
    now_ms: int,
    origin: AppendOrigin,
    *,
    max_decompressed_bytes: int,
    allow_many: bool = True,
) -> ValidatedRecords:
    """Check whole batches and make them what will be written, except for offset and epoch.

    CLIENT and COORDINATOR: every rule of Kafka's LogValidator; timestamps in ms; a batch is rebuilt
    when the topic's codec differs or its inner deltas do not count up. REPLICATION: size and CRC
    only, offsets kept, a partial tail dropped, any size.
    Raises BadBatchCrc, InvalidRecord, InvalidTimestamp, NullKey, RecordBatchTooLarge,
    DecompressedTooLarge, UnsupportedCompression; then nothing of the set may be appended.
    """
    if origin is AppendOrigin.CLIENT:
        usual = validate_usual(records, config, now_ms)
        if usual is not None:
            return usual
    return _validate_any(
        records,
        config,
        now_ms,
        origin,
        max_decompressed_bytes=max_decompressed_bytes,
        allow_many=allow_many,
    )


def _validate_any(
    records: bytes | memoryview,
    config: LogConfig,
    now_ms: int,
    origin: AppendOrigin,
    *,
    max_decompressed_bytes: int,
    allow_many: bool = True,
) -> ValidatedRecords:
    """See ``validate``: of all records, step by step."""
    is_log_append_time = config.message_timestamp_type == "LogAppendTime"
    topic = _Topic(
        config,
        now_ms,
        origin,
        max_decompressed_bytes,
        TimestampType.LOG_APPEND_TIME if is_log_append_time else TimestampType.CREATE_TIME,
    )
    batches: list[BatchFacts] = []
    for batch in _split(memoryview(records), origin):
        if batches and not allow_many:
            raise InvalidRecord(
                "The record set has more than one batch: one batch per partition is allowed"
            )
        if origin is AppendOrigin.REPLICATION:
            header = _checked_header(batch)
            batches.append(_facts(batch, header, header.max_timestamp, topic))
        else:
            batches.append(_validate_batch(batch, topic))
    if not batches and origin is not AppendOrigin.REPLICATION:
        raise InvalidRecord("Record batch is empty: there is no batch in the request")
    is_stamped = is_log_append_time and origin is not AppendOrigin.REPLICATION
    return ValidatedRecords(
        batches=tuple(batches),
        size_bytes=sum(len(batch.data) for batch in batches),
        record_count=sum(batch.record_count for batch in batches),
        max_timestamp_ms=max((batch.max_timestamp_ms for batch in batches), default=NO_TIMESTAMP),
        log_append_time_ms=now_ms if is_stamped else NO_TIMESTAMP,
        origin=origin,
    )


def validate_usual(
    data: bytes | memoryview, config: LogConfig, now_ms: int
) -> ValidatedRecords | None:
    """A client's one uncompressed batch that keeps every rule as it is: most of all requests.

    It is in no transaction. None of any other: ``validate`` judges it and, if it has to, changes
    it.
    """
    if len(data) <= SMALL_BATCH_BYTES:
        is_taken = is_small_and_usual(data, config, now_ms)
    else:
        is_taken = _stays_as_it_is(data, config) and _is_large_and_usual(data, config, now_ms)
    if not is_taken:
        return None
    _, _, _, _, _, _, delta, _, max_ms, producer_id, epoch, sequence, count = unpack_header(data)
    batch = BatchFacts(data, count, delta, max_ms, 0, producer_id, epoch, sequence)
    return ValidatedRecords((batch,), len(data), count, max_ms, NO_TIMESTAMP, AppendOrigin.CLIENT)


def is_small_and_usual(data: bytes | memoryview, config: LogConfig, now_ms: int) -> bool:
    """Whether ``validate_usual`` takes it and it has at most SMALL_BATCH_BYTES: one short call."""
    if len(data) > SMALL_BATCH_BYTES or not _stays_as_it_is(data, config):
        return False
    least_ms = max(now_ms - config.message_timestamp_before_max_ms, INT64_MIN)
    most_ms = min(now_ms + config.message_timestamp_after_max_ms, INT64_MAX)
    batch, facts = np.frombuffer(data, np.uint8), np.empty(RECORD_FACT_COUNT, np.int64)
    return is_usual_batch(batch, least_ms, most_ms, not config.is_compacted, facts) == 1


def _stays_as_it_is(data: bytes | memoryview, config: LogConfig) -> bool:
    """Whether the topic would take an uncompressed batch of this size without a change."""
    return (
        HEADER_BYTES < len(data) <= config.max_message_bytes
        and config.message_timestamp_type != "LogAppendTime"
        and config.compression_type in _KEEPS_PLAIN
    )


def _is_large_and_usual(data: bytes | memoryview, config: LogConfig, now_ms: int) -> bool:
    """As the kernel of small ones, step by step, without the GIL."""
    if data[MAGIC_AT] != MAGIC_V2 or not is_crc_valid(data):
        return False
    base_offset, length, _, _, _, attributes, delta, base_ms, max_ms, *producer, count = (
        unpack_header(data)
    )
    producer_id, _, sequence = producer
    facts = np.empty(RECORD_FACT_COUNT, dtype=np.int64)
    if (
        length + LOG_OVERHEAD != len(data)
        or base_offset != 0
        or attributes != 0
        or not 0 < count == delta + 1
        or sequence < 0 <= producer_id
        or validate_records(np.frombuffer(data, np.uint8, -1, HEADER_BYTES), count, facts) < 0
    ):
        return False
    most, _, least, _, null_keys, _, _, first_misnumbered, *_ = facts.tolist()
    return (
        first_misnumbered < 0
        and NO_TIMESTAMP <= base_ms + most == max_ms
        and base_ms + least >= INT64_MIN
        and not is_suspect(config, now_ms, null_keys > 0, base_ms + least, max_ms, is_stamped=False)
    )


def _split(records: memoryview, origin: AppendOrigin) -> Iterator[memoryview]:
    """Whole batches of magic 2, in order."""
    position, end = 0, len(records)
    while position < end:
        left = end - position
        if left > MAGIC_AT and records[position + MAGIC_AT] != MAGIC_V2:
            magic = records[position + MAGIC_AT]
            raise InvalidRecord(f"Magic {magic} at byte {position}: only record batches of magic 2")
        size = left + 1  # too short to say its size: partial
        if left >= LOG_OVERHEAD:
            (length,) = struct.unpack_from(">i", records, position + LENGTH_AT)
            size = length + LOG_OVERHEAD
            if size < HEADER_BYTES:
                raise BadBatchCrc(
                    f"Record batch at byte {position} has {size} bytes, less than a header's"
                )
        if size > left:
            if origin is AppendOrigin.REPLICATION:
                return
            raise InvalidRecord(f"The bytes from {position} on are no whole record batch")
        yield records[position : position + size]
        position += size


def _checked_header(batch: memoryview) -> BatchHeader:
    """Header of a batch whose CRC holds and whose codec exists."""
    if not is_crc_valid(batch):
        raise BadBatchCrc("Record batch is corrupt: its stored CRC is not that of its bytes")
    try:
        header = read_header(batch)
        codec_of(header.attributes)
    except MalformedBatch as error:
        if batch[ATTRIBUTES_AT + 1] & _CODEC_BITS > Codec.ZSTD:
            raise UnsupportedCompression(error.reason) from error
        raise InvalidRecord(error.reason) from error
    return header


def _validate_batch(batch: memoryview, topic: _Topic) -> BatchFacts:
    """The rules for one batch of a client or coordinator."""
    _refuse_too_large(len(batch), topic)
    header = _checked_header(batch)
    if topic.origin is AppendOrigin.CLIENT:
        _refuse_client_header(header)
    source = codec_of(header.attributes)
    body = batch[HEADER_BYTES:]
    inflated: bytes | memoryview = body
    if source is not Codec.NONE:
        inflated = decompress(source, body, max_bytes=topic.max_decompressed_bytes)
    facts = _walk(inflated, header)
    _check_records(inflated, header, facts, topic)
    max_timestamp = topic.now_ms
    if topic.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = max(NO_TIMESTAMP, _max_record_timestamp(header, facts))
    # What to store: a control batch's own codec, the topic's, or with "producer" the producer's.
    is_own = is_control(header.attributes)
    target = source if is_own else _CODECS.get(topic.config.compression_type, source)
    is_numbered = facts[RecordFact.FIRST_MISNUMBERED_INDEX] < 0
    if source is Codec.NONE and not is_numbered:
        raise InvalidRecord("Inner offset deltas of the record batch do not count up from 0")
    if target is source and is_numbered:
        data = _patched(batch, header, max_timestamp, topic)
    else:
        if not is_numbered:
            inflated, base_timestamp = renumber_records(
                inflated, header.record_count, header.base_timestamp
            )
            header = header._replace(base_timestamp=base_timestamp)
        data = _rebuilt(inflated, header, target, max_timestamp, topic)
        _refuse_too_large(len(data), topic)
        header = read_header(data)
    return _facts(data, header, max_timestamp, topic)


def _refuse_too_large(size: int, topic: _Topic) -> None:
    """max.message.bytes, before and after a rebuild."""
    limit = topic.config.max_message_bytes
    if size > limit:
        raise RecordBatchTooLarge(
            f"The record batch size is {size} bytes which exceeds the maximum configured value of "
            f"{limit}. Send smaller batches, or raise max.message.bytes of the topic: kafkalog "
            f"topics alter TOPIC --config max.message.bytes={size}",
            size_bytes=size,
            max_message_bytes=limit,
        )


def _refuse_client_header(header: BatchHeader) -> None:
    """Header rules that hold for clients alone."""
    count_from_offsets = header.last_offset_delta + 1
    if header.base_offset != 0:
        raise InvalidRecord(
            f"The base offset of the record batch should be 0, but it is {header.base_offset}"
        )
    if count_from_offsets <= 0:
        raise InvalidRecord(f"Batch has an invalid offset range: [0, {header.last_offset}]")
    if header.record_count <= 0:
        raise InvalidRecord(f"Invalid reported count for record batch: {header.record_count}")
    if count_from_offsets != header.record_count:
        raise InvalidRecord(
            f"Inconsistent batch offset range [0, {header.last_offset}] and count of records "
            f"{header.record_count}"
        )
    if is_control(header.attributes):
        raise InvalidRecord("Clients are not allowed to write control records")
    if header.has_producer_id and header.base_sequence < 0:
        raise InvalidRecord(
            f"Invalid sequence number {header.base_sequence} in record batch with producerId "
            f"{header.producer_id}"
        )


def _walk(inflated: bytes | memoryview, header: BatchHeader) -> npt.NDArray[np.int64]:
    """RecordFact values of the records; InvalidRecord when they are malformed."""
    facts = np.empty(RECORD_FACT_COUNT, dtype=np.int64)
    status = validate_records(np.frombuffer(inflated, np.uint8), header.record_count, facts)
    if status < 0:
        fault, index = fault_of(status)
        raise InvalidRecord(
            f"Record {index} of the batch is malformed: {fault.name.lower().replace('_', ' ')}",
            ((index, "malformed record"),),
        )
    return facts


def _max_record_timestamp(header: BatchHeader, facts: npt.NDArray[np.int64]) -> int:
    """Largest record timestamp as readers see it."""
    if timestamp_type_of(header.attributes) is TimestampType.LOG_APPEND_TIME:
        return header.max_timestamp
    if header.record_count == 0:
        return NO_TIMESTAMP
    return header.base_timestamp + int(facts[RecordFact.MAX_TIMESTAMP_DELTA])


def _check_records(
    inflated: bytes | memoryview, header: BatchHeader, facts: npt.NDArray[np.int64], topic: _Topic
) -> None:
    """Record rules by the extremes; the records are named only when one of them breaks."""
    is_stamped = timestamp_type_of(header.attributes) is TimestampType.LOG_APPEND_TIME
    greatest = _max_record_timestamp(header, facts)
    least = greatest
    if not is_stamped and header.record_count:
        least = header.base_timestamp + int(facts[RecordFact.MIN_TIMESTAMP_DELTA])
    if least < INT64_MIN or greatest > INT64_MAX:
        raise InvalidTimestamp("A record timestamp is no 64-bit number")
    has_null_keys = facts[RecordFact.NULL_KEYS] > 0
    if is_suspect(
        topic.config, topic.now_ms, has_null_keys, least, greatest, is_stamped=is_stamped
    ):
        _raise_record_errors(inflated, header, topic)


def is_suspect(
    config: LogConfig,
    now_ms: int,
    has_null_keys: bool,
    least_ms: int,
    greatest_ms: int,
    *,
    is_stamped: bool,
) -> bool:
    """Whether records with these extremes may break a record rule; False: none of them does.

    is_stamped: the producer set the type LogAppendTime.
    """
    if has_null_keys and config.is_compacted:
        return True
    if config.message_timestamp_type == "LogAppendTime":
        return is_stamped
    return (
        now_ms - least_ms > config.message_timestamp_before_max_ms
        or greatest_ms - now_ms > config.message_timestamp_after_max_ms
        or (is_stamped and least_ms == NO_TIMESTAMP)
    )


def _raise_record_errors(inflated: bytes | memoryview, header: BatchHeader, topic: _Topic) -> None:
    """Name every bad record, as the produce answer does; returns when only -1 looked too old."""
    table = np.empty((header.record_count, RECORD_COLUMN_COUNT), dtype=np.int64)
    status = scan_records(np.frombuffer(inflated, np.uint8), header.record_count, table)
    assert status == 0, "the records were valid a moment ago"
    deltas = table[:, RecordColumn.TIMESTAMP_DELTA].tolist()
    key_lengths = table[:, RecordColumn.KEY_LENGTH].tolist()
    is_stamped = timestamp_type_of(header.attributes) is TimestampType.LOG_APPEND_TIME
    errors: list[tuple[int, str]] = []
    has_timestamp_error = False
    for index, (delta, key_length) in enumerate(zip(deltas, key_lengths, strict=True)):
        timestamp = header.max_timestamp if is_stamped else header.base_timestamp + delta
        if topic.config.is_compacted and key_length < 0:
            errors.append((index, _NO_KEY))
        elif (complaint := _timestamp_complaint(timestamp, is_stamped, topic)) is not None:
            errors.append((index, complaint))
            has_timestamp_error = True
    if not errors:
        return
    if has_timestamp_error:
        raise InvalidTimestamp(
            "One or more records have been rejected due to invalid timestamp", tuple(errors)
        )
    shown = "; ".join(f"record {index}: {text}" for index, text in errors[:SHOWN_ERRORS])
    raise NullKey(
        f"One or more records have been rejected due to {len(errors)} record errors in total, and "
        f"only showing the first three errors at most: {shown}",
        tuple(errors),
    )


def faults_of_records(refusal: InvalidRecord) -> dict[int, InvalidRecord]:
    """What a refused batch says of each of its bad records, by index; empty: of the batch alone.

    A batch with a bad timestamp is refused for that, also where other records lack their keys.
    """
    return {
        index: NullKey(text) if text == _NO_KEY else type(refusal)(text)
        for index, text in refusal.record_errors
    }


def _timestamp_complaint(timestamp: int, is_stamped: bool, topic: _Topic) -> str | None:
    """What is wrong with one record's timestamp."""
    is_create_time = topic.timestamp_type is TimestampType.CREATE_TIME
    if is_create_time and timestamp != NO_TIMESTAMP:
        before = topic.config.message_timestamp_before_max_ms
        after = topic.config.message_timestamp_after_max_ms
        if topic.now_ms - timestamp > before or timestamp - topic.now_ms > after:
            return (
                f"Timestamp {timestamp} is out of range. The timestamp should be within "
                f"[{topic.now_ms - before}, {topic.now_ms + after}]"
            )
        return None
    if is_stamped:
        return "Invalid timestamp type: producers should not set LogAppendTime"
    return None


def _patched(
    batch: memoryview, header: BatchHeader, max_timestamp: int, topic: _Topic
) -> bytes | memoryview:
    """The batch itself, or a copy with corrected timestamp fields."""
    has_type = timestamp_type_of(header.attributes) is topic.timestamp_type
    if has_type and header.max_timestamp == max_timestamp:
        return batch
    if topic.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return with_log_append_time(batch, max_timestamp)
    return with_max_timestamp(batch, max_timestamp)


def _rebuilt(
    inflated: bytes | memoryview,
    header: BatchHeader,
    target: Codec,
    max_timestamp: int,
    topic: _Topic,
) -> bytes:
    """A new batch of the same records with another codec; producer fields survive."""
    levels = {
        Codec.GZIP: topic.config.compression_gzip_level,
        Codec.LZ4: topic.config.compression_lz4_level,
        Codec.ZSTD: topic.config.compression_zstd_level,
    }
    payload = compress(target, inflated, levels.get(target))
    attributes = header.attributes & ~(_CODEC_BITS | _TIMESTAMP_TYPE_BIT)
    attributes |= target | topic.timestamp_type << 3
    new_header = header._replace(
        length=HEADER_BYTES - LOG_OVERHEAD + len(payload),
        attributes=attributes,
        max_timestamp=max_timestamp,
    )
    batch = bytearray(encode_header(new_header) + payload)
    struct.pack_into(">I", batch, CRC_AT, compute_crc(batch))
    return bytes(batch)


def _facts(
    data: bytes | memoryview, header: BatchHeader, max_timestamp: int, topic: _Topic
) -> BatchFacts:
    """BatchFacts of the batch as it will be written."""
    attributes = header.attributes
    if topic.origin is not AppendOrigin.REPLICATION:
        attributes = attributes & ~_TIMESTAMP_TYPE_BIT | topic.timestamp_type << 3
    control_type: int | None = None
    coordinator_epoch = -1
    if is_control(attributes) and header.record_count:
        marker = read_batch_marker(data)
        if marker is not None:
            control_type, coordinator_epoch = int(marker.control_type), marker.coordinator_epoch
    return BatchFacts(
        data=data,
        record_count=header.record_count,
        last_offset_delta=header.last_offset_delta,
        max_timestamp_ms=max_timestamp,
        attributes=attributes,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        control_type=control_type,
        coordinator_epoch=coordinator_epoch,
    )


def validate_built(
    batch: BuiltBatch, config: LogConfig, now_ms: int, *, max_decompressed_bytes: int
) -> ValidatedRecords:
    """``validate`` for a client's records that we put into a batch ourselves.

    What the builder knows answers the rules without another walk over the bytes; a batch that must
    change, or may have to be refused, goes through ``validate`` itself. Raises as that.
    """
    size = len(batch.data)
    if (
        size > config.max_message_bytes
        or config.message_timestamp_type == "LogAppendTime"
        or config.compression_type not in _KEEPS_PLAIN
        or batch.min_timestamp < NO_TIMESTAMP
        or batch.producer.base_sequence < 0 <= batch.producer.producer_id
        or is_suspect(
            config,
            now_ms,
            batch.null_key_count > 0,
            batch.min_timestamp,
            batch.max_timestamp,
            is_stamped=False,
        )
    ):
        return validate(
            batch.data,
            config,
            now_ms,
            AppendOrigin.CLIENT,
            max_decompressed_bytes=max_decompressed_bytes,
        )
    facts = BatchFacts(
        data=batch.data,
        record_count=batch.record_count,
        last_offset_delta=batch.record_count - 1,
        max_timestamp_ms=batch.max_timestamp,
        attributes=0,
        producer_id=batch.producer.producer_id,
        producer_epoch=batch.producer.producer_epoch,
        base_sequence=batch.producer.base_sequence,
    )
    return ValidatedRecords(
        batches=(facts,),
        size_bytes=size,
        record_count=batch.record_count,
        max_timestamp_ms=batch.max_timestamp,
        log_append_time_ms=NO_TIMESTAMP,
        origin=AppendOrigin.CLIENT,
    )
