# ruff: noqa: E501, PLR0913 - one line per key reads as a table; a row has that many columns
"""Every configuration key of kafkalog: the declaration tables.

Owns names, defaults, types, units, ranges, synonyms and the description for operators. Sources:
Kafka 4.1 ``LogConfig``, ``ServerLogConfigs``, ``CleanerConfig``, ``KafkaConfig``; keys of kafkalog's
own are marked. A key with ``effective=False`` is accepted and validated but has no effect in this
release; its description says so (see ``NO_EFFECT``), and the daemon logs it when it is set.
"""

from __future__ import annotations

from functools import partial

from kafkalog.broker.broker_config import OPEN_FILES_MIN
from kafkalog.format.integers import INT64_MAX
from kafkalog.settings.setting import ANY, DOUBLE_MAX, Kind, Scope, Setting, Synonym, Valid, Value

NO_EFFECT = "It has no effect in this release."

_MIB = 1_048_576
_SEGMENT_BYTES = Valid(
    low=_MIB,
    advice="the smallest is 1MiB; for tests there is the topic key internal.segment.bytes, which may"
    " be smaller",
)
_NEVER_NEGATIVE = Valid(low=0)
_POSITIVE = Valid(low=1)
_RATIO = Valid(low=0, high=1)
_CODECS = Valid(words=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
_POLICIES = Valid(words=("compact", "delete"))
_TIMESTAMP_TYPES = Valid(words=("CreateTime", "LogAppendTime"))
_GZIP_LEVELS = Valid(low=1, high=9, extra=(-1,))
_LZ4_LEVELS = Valid(low=1, high=17)
_ZSTD_LEVELS = Valid(low=-131_072, high=22)
_ACKS = Valid(words=("all", "1", "0"))
_PORT = Valid(low=0, high=65_535)
_AGE = Valid(text="any number from 1, or -1")


def _key(
    scope: Scope,
    key: str,
    kind: Kind,
    default: Value,
    unit: str,
    valid: Valid,
    doc: str,
    *synonyms: str | Synonym,
    dynamic: bool = False,
    effective: bool = True,
    own: bool = False,
    internal: bool = False,
    field: str | None = None,
) -> Setting:
    """A row; its field of a configuration is the key with underscores ("" when there is none)."""
    if field is None:
        field = key.replace(".", "_") if effective or scope is not Scope.BROKER else ""
    chain = tuple(Synonym(name) if isinstance(name, str) else name for name in synonyms)
    text = doc if effective else f"{doc} {NO_EFFECT}"
    return Setting(
        key, kind, default, unit, valid, scope, field, text,
        dynamic=dynamic, effective=effective, own=own, internal=internal, synonyms=chain,
    )  # fmt: skip


_topic = partial(_key, Scope.TOPIC, dynamic=True)
_broker = partial(_key, Scope.BROKER)
_server = partial(_key, Scope.SERVER, own=True)


def _fallback(
    key: str, kind: Kind, default: Value, unit: str, valid: Valid, topic_key: str,
    *, dynamic: bool = True, effective: bool = True,
) -> Setting:  # fmt: skip
    """A broker key whose only work is to give a topic key its default."""
    doc = f"Default of the topic key {topic_key}."
    return _key(
        Scope.TOPIC_DEFAULT, key, kind, default, unit, valid, doc,
        dynamic=dynamic, effective=effective, field="",
    )  # fmt: skip


_B, _I, _L, _D, _S, _LIST = (
    Kind.BOOLEAN, Kind.INT, Kind.LONG, Kind.DOUBLE, Kind.STRING, Kind.LIST,
)  # fmt: skip
_HOURS = 3_600_000
_MINUTES = 60_000

# fmt: off
TOPIC_SETTINGS: tuple[Setting, ...] = (
    _topic("cleanup.policy", _LIST, ("delete",), "", _POLICIES, "How old data is deleted: delete by time and size, compact by key, or both. Delete-records requires delete.", "log.cleanup.policy"),
    _topic("segment.bytes", _I, 1_073_741_824, "bytes", _SEGMENT_BYTES, "Size at which a new segment is rolled.", "log.segment.bytes"),
    _topic("internal.segment.bytes", _I, None, "bytes", _POSITIVE, "For tests: beats segment.bytes and may be smaller than 1 MiB.", internal=True),
    _topic("segment.ms", _L, 604_800_000, "ms", _POSITIVE, "Age, by record timestamps, at which a new segment is rolled.", "log.roll.ms", Synonym("log.roll.hours", _HOURS)),
    _topic("segment.jitter.ms", _L, 0, "ms", _NEVER_NEGATIVE, "Maximum random time that is subtracted from segment.ms, so that segments do not all roll at once.", "log.roll.jitter.ms", Synonym("log.roll.jitter.hours", _HOURS)),
    _topic("segment.index.bytes", _I, 10_485_760, "bytes", Valid(low=4), "Preallocated size of the active segment's indexes. A full index rolls the segment.", "log.index.size.max.bytes"),
    _topic("index.interval.bytes", _I, 4_096, "bytes", _NEVER_NEGATIVE, "Bytes of log between two index entries.", "log.index.interval.bytes"),
    _topic("flush.messages", _L, INT64_MAX, "records", _POSITIVE, "Number of records after which the log is synced, in addition to syncs for acknowledgements.", "log.flush.interval.messages"),
    _topic("flush.ms", _L, INT64_MAX, "ms", _NEVER_NEGATIVE, "Time after which unsynced records are synced.", "log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    _topic("retention.ms", _L, 604_800_000, "ms", Valid(low=-1), "Age at which segments are deleted; -1: never.", "log.retention.ms", Synonym("log.retention.minutes", _MINUTES), Synonym("log.retention.hours", _HOURS)),
    _topic("retention.bytes", _L, -1, "bytes", ANY, "Size of a partition above which its oldest segments are deleted; negative: never.", "log.retention.bytes"),
    _topic("max.message.bytes", _I, 1_048_588, "bytes", _NEVER_NEGATIVE, "Maximum size of a record batch.", "message.max.bytes"),
    _topic("file.delete.delay.ms", _L, 60_000, "ms", _NEVER_NEGATIVE, "Time between the renaming of a file to .deleted and its removal.", "log.segment.delete.delay.ms"),
    _topic("delete.retention.ms", _L, 86_400_000, "ms", _NEVER_NEGATIVE, "How long tombstones of a compacted topic are retained.", "log.cleaner.delete.retention.ms"),
    _topic("min.compaction.lag.ms", _L, 0, "ms", _NEVER_NEGATIVE, "Age below which a record is not compacted; at most max.compaction.lag.ms.", "log.cleaner.min.compaction.lag.ms"),
    _topic("max.compaction.lag.ms", _L, INT64_MAX, "ms", _POSITIVE, "Age at which the active segment of a compacted topic rolls and becomes eligible for compaction.", "log.cleaner.max.compaction.lag.ms"),
    _topic("min.cleanable.dirty.ratio", _D, 0.5, "ratio", _RATIO, "Share of dirty bytes above which a log is compacted.", "log.cleaner.min.cleanable.ratio"),
    _topic("compression.type", _S, "producer", "", _CODECS, "Codec of stored batches; producer keeps the codec of the producer.", "compression.type"),
    _topic("compression.gzip.level", _I, -1, "", _GZIP_LEVELS, "Level when the daemon compresses with gzip; -1 is the library's default.", "compression.gzip.level"),
    _topic("compression.lz4.level", _I, 9, "", _LZ4_LEVELS, "Level when the daemon compresses with lz4.", "compression.lz4.level"),
    _topic("compression.zstd.level", _I, 3, "", _ZSTD_LEVELS, "Level when the daemon compresses with zstd.", "compression.zstd.level"),
    _topic("preallocate", _B, False, "", ANY, "Whether a new segment file is preallocated to its full size.", "log.preallocate"),
    _topic("message.timestamp.type", _S, "CreateTime", "", _TIMESTAMP_TYPES, "Source of record timestamps: the producer (CreateTime) or the daemon at append (LogAppendTime).", "log.message.timestamp.type"),
    _topic("message.timestamp.before.max.ms", _L, INT64_MAX, "ms", _NEVER_NEGATIVE, "Maximum age of a record's timestamp at append.", "log.message.timestamp.before.max.ms"),
    _topic("message.timestamp.after.max.ms", _L, 3_600_000, "ms", _NEVER_NEGATIVE, "Maximum time that a record's timestamp may be in the future at append.", "log.message.timestamp.after.max.ms"),
    _topic("min.insync.replicas", _I, 1, "", _POSITIVE, "Accepted for compatibility with Kafka; there is always one replica.", "min.insync.replicas", effective=False),
    _topic("unclean.leader.election.enable", _B, False, "", ANY, "Accepted for compatibility with Kafka; there are no elections.", "unclean.leader.election.enable", effective=False),
    _topic("remote.storage.enable", _B, False, "", ANY, "Accepted for compatibility with Kafka; there is no tiered storage.", effective=False),
    _topic("remote.log.copy.disable", _B, False, "", ANY, "Accepted for compatibility with Kafka; there is no tiered storage.", effective=False, field=""),
    _topic("remote.log.delete.on.disable", _B, False, "", ANY, "Accepted for compatibility with Kafka; there is no tiered storage.", effective=False, field=""),
    _topic("local.retention.ms", _L, -2, "ms", Valid(low=-2), "Accepted for compatibility with Kafka; there is no tiered storage.", "log.local.retention.ms", effective=False),
    _topic("local.retention.bytes", _L, -2, "bytes", Valid(low=-2), "Accepted for compatibility with Kafka; there is no tiered storage.", "log.local.retention.bytes", effective=False),
    _topic("leader.replication.throttled.replicas", _LIST, (), "", ANY, "Accepted for compatibility with Kafka; there is no replication.", effective=False, field=""),
    _topic("follower.replication.throttled.replicas", _LIST, (), "", ANY, "Accepted for compatibility with Kafka; there is no replication.", effective=False, field=""),
    _topic("http.produce.acks", _S, None, "", _ACKS, "Durability class of a produce to the topic that names none. Unset: the broker's http.produce.acks.", own=True),
    _topic("quota.bytes", _L, -1, "bytes", Valid(low=-1), "Maximum bytes of the .log files of all partitions of the topic together. An append that would exceed it is refused until retention or a deletion makes room. -1: no quota.", own=True),
    _topic("archive.hold", _B, False, "", ANY, "Whether retention by time and size waits for an archive: records at or above a partition's archived offset are retained. Delete-records and compaction do not wait.", own=True),
    _topic("archive.hold.max.bytes", _L, -1, "bytes", Valid(low=-1), "Maximum bytes per partition that archive.hold retains beyond time and size. Above it the oldest segments are deleted without being archived, with a warning. -1: no maximum.", own=True),
)

TOPIC_DEFAULT_SETTINGS: tuple[Setting, ...] = (
    _fallback("log.cleanup.policy", _LIST, ("delete",), "", _POLICIES, "cleanup.policy"),
    _fallback("log.segment.bytes", _I, 1_073_741_824, "bytes", _SEGMENT_BYTES, "segment.bytes"),
    _fallback("log.roll.ms", _L, None, "ms", _POSITIVE, "segment.ms"),
    _fallback("log.roll.hours", _I, 168, "hours", _POSITIVE, "segment.ms", dynamic=False),
    _fallback("log.roll.jitter.ms", _L, None, "ms", _NEVER_NEGATIVE, "segment.jitter.ms"),
    _fallback("log.roll.jitter.hours", _I, 0, "hours", _NEVER_NEGATIVE, "segment.jitter.ms", dynamic=False),
    _fallback("log.index.size.max.bytes", _I, 10_485_760, "bytes", Valid(low=4), "segment.index.bytes"),
    _fallback("log.index.interval.bytes", _I, 4_096, "bytes", _NEVER_NEGATIVE, "index.interval.bytes"),
    _fallback("log.flush.interval.messages", _L, INT64_MAX, "records", _POSITIVE, "flush.messages"),
    _fallback("log.flush.interval.ms", _L, None, "ms", _NEVER_NEGATIVE, "flush.ms"),
    _fallback("log.retention.ms", _L, None, "ms", _AGE, "retention.ms; negative: never"),
    _fallback("log.retention.minutes", _I, None, "minutes", _AGE, "retention.ms; negative: never", dynamic=False),
    _fallback("log.retention.hours", _I, 168, "hours", _AGE, "retention.ms; negative: never", dynamic=False),
    _fallback("log.retention.bytes", _L, -1, "bytes", ANY, "retention.bytes"),
    _fallback("message.max.bytes", _I, 1_048_588, "bytes", _NEVER_NEGATIVE, "max.message.bytes"),
    _fallback("log.segment.delete.delay.ms", _L, 60_000, "ms", _NEVER_NEGATIVE, "file.delete.delay.ms"),
    _fallback("log.cleaner.delete.retention.ms", _L, 86_400_000, "ms", _NEVER_NEGATIVE, "delete.retention.ms"),
    _fallback("log.cleaner.min.compaction.lag.ms", _L, 0, "ms", _NEVER_NEGATIVE, "min.compaction.lag.ms"),
    _fallback("log.cleaner.max.compaction.lag.ms", _L, INT64_MAX, "ms", _POSITIVE, "max.compaction.lag.ms"),
    _fallback("log.cleaner.min.cleanable.ratio", _D, 0.5, "ratio", _RATIO, "min.cleanable.dirty.ratio"),
    _fallback("compression.type", _S, "producer", "", _CODECS, "compression.type"),
    _fallback("compression.gzip.level", _I, -1, "", _GZIP_LEVELS, "compression.gzip.level"),
    _fallback("compression.lz4.level", _I, 9, "", _LZ4_LEVELS, "compression.lz4.level"),
    _fallback("compression.zstd.level", _I, 3, "", _ZSTD_LEVELS, "compression.zstd.level"),
    _fallback("log.preallocate", _B, False, "", ANY, "preallocate"),
    _fallback("log.message.timestamp.type", _S, "CreateTime", "", _TIMESTAMP_TYPES, "message.timestamp.type"),
    _fallback("log.message.timestamp.before.max.ms", _L, INT64_MAX, "ms", _NEVER_NEGATIVE, "message.timestamp.before.max.ms"),
    _fallback("log.message.timestamp.after.max.ms", _L, 3_600_000, "ms", _NEVER_NEGATIVE, "message.timestamp.after.max.ms"),
    _fallback("min.insync.replicas", _I, 1, "", _POSITIVE, "min.insync.replicas", effective=False),
    _fallback("unclean.leader.election.enable", _B, False, "", ANY, "unclean.leader.election.enable", effective=False),
    _fallback("log.local.retention.ms", _L, -2, "ms", Valid(low=-2), "local.retention.ms", effective=False),
    _fallback("log.local.retention.bytes", _L, -2, "bytes", Valid(low=-2), "local.retention.bytes", effective=False),
)

BROKER_SETTINGS: tuple[Setting, ...] = (
    _broker("log.dirs", _LIST, None, "", ANY, "Log directories, separated by commas. It overrides log.dir."),
    _broker("log.dir", _S, None, "", ANY, "Log directory when log.dirs is not set. Unset: $STATE_DIRECTORY (systemd), else kafkalog in $XDG_DATA_HOME or $HOME/.local/share, else /var/lib/kafkalog. Differs from Kafka's /tmp/kafka-logs, which many systems empty at a boot.", field="log_dirs"),
    _broker("node.id", _I, None, "", _NEVER_NEGATIVE, "Node id that all log directories must have in meta.properties. Unset: the one that they have, also those that Kafka wrote, or 1 if all are new. Differs from Kafka, which has no usable default."),
    _broker("broker.id", _I, None, "", Valid(low=0, extra=(-1,)), "Former name of node.id, which counts when node.id is not set; -1: not set. Two different ids are an error.", field="node_id"),
    _broker("num.partitions", _I, 1, "", _POSITIVE, "Number of partitions of a topic that is created without a count."),
    _broker("max.partitions.per.topic", _I, 10_000, "partitions", _POSITIVE, "Maximum number of partitions of a new topic.", own=True),
    _broker("auto.create.topics.enable", _B, True, "", ANY, "Whether a produce to an unknown topic creates the topic."),
    _broker("num.recovery.threads.per.data.dir", _I, 2, "threads", _POSITIVE, "Number of threads per log directory that load and recover logs at the start and close them at the stop."),
    _broker("background.threads", _I, 10, "threads", _POSITIVE, "Number of threads for background tasks."),
    _broker("log.flush.scheduler.interval.ms", _L, INT64_MAX, "ms", _POSITIVE, "Period of the task that syncs logs whose flush.ms is over; also the default of flush.ms."),
    _broker("log.flush.offset.checkpoint.interval.ms", _I, 60_000, "ms", _NEVER_NEGATIVE, "Period of writing recovery-point-offset-checkpoint."),
    _broker("log.flush.start.offset.checkpoint.interval.ms", _I, 60_000, "ms", _NEVER_NEGATIVE, "Period of writing log-start-offset-checkpoint."),
    _broker("log.initial.task.delay.ms", _L, 30_000, "ms", _NEVER_NEGATIVE, "Delay of the first run of the periodic tasks."),
    _broker("replica.high.watermark.checkpoint.interval.ms", _L, 5_000, "ms", _POSITIVE, "Period of writing replication-offset-checkpoint."),
    _broker("replica.alter.log.dirs.io.max.bytes.per.second", _L, INT64_MAX, "bytes/s", _POSITIVE, "Maximum bytes per second that all moves of partitions between log directories copy together. Kafka accepts this key at run time only.", dynamic=True),
    _broker("producer.id.expiration.ms", _I, 86_400_000, "ms", _POSITIVE, "Idle time after which the state of an idempotent producer is removed."),
    _broker("producer.id.expiration.check.interval.ms", _I, 600_000, "ms", _POSITIVE, "Period of the removal of expired producers."),
    _broker("offsets.topic.num.partitions", _I, 50, "partitions", _POSITIVE, "Number of partitions of __consumer_offsets, which the first commit creates."),
    _broker("offsets.topic.segment.bytes", _I, 104_857_600, "bytes", Valid(low=_MIB), "segment.bytes of __consumer_offsets, which the first commit creates. Differs from Kafka: at least 1 MiB, as for every topic."),
    _broker("offsets.commit.required.acks", _I, -1, "", Valid(low=-1, high=1), "Durability of a group's commit before its answer: -1 is the disk, 0 and 1 are the page cache."),
    _broker("offsets.retention.minutes", _I, 10_080, "minutes", _POSITIVE, "How long a group's offsets are retained after its last commit and its last member."),
    _broker("offsets.retention.check.interval.ms", _L, 600_000, "ms", _POSITIVE, "Period of the removal of expired offsets."),
    _broker("offset.metadata.max.bytes", _I, 4_096, "bytes", _NEVER_NEGATIVE, "Maximum size of a commit's metadata."),
    _broker("transaction.max.timeout.ms", _I, 900_000, "ms", _POSITIVE, "Idle time, without a begin or an append, after which the open batch of an exactly-once sink is aborted. Differs from Kafka, which counts the whole length of a transaction."),
    _broker("transaction.abort.timed.out.transaction.cleanup.interval.ms", _I, 10_000, "ms", _POSITIVE, "Period of the abort of such batches, and of retries of markers that could not be written."),
    _broker("transactional.id.expiration.ms", _I, 604_800_000, "ms", _POSITIVE, "How long a sink's producer is retained after its last begin, and a query that committed nothing."),
    _broker("transaction.remove.expired.transaction.cleanup.interval.ms", _I, 3_600_000, "ms", _POSITIVE, "Period of the removal of expired queries."),
    _broker("transaction.state.log.segment.bytes", _I, 104_857_600, "bytes", Valid(low=_MIB), "segment.bytes of __sink_state, which the first begin creates. Differs from Kafka: at least 1 MiB, as for every topic."),
    _broker("num.io.threads.per.data.dir", _I, 2, "threads", _POSITIVE, "Number of threads per log directory for reads that miss the page cache.", own=True),
    _broker("consumer.instance.timeout.ms", _I, 300_000, "ms", _POSITIVE, "Idle time after which a consumer instance of the v2 API leaves its group, as in the REST proxies.", own=True),
    _broker("http.produce.acks", _S, "all", "", _ACKS, "Durability class of a produce that names none: all waits for the disk, 1 for the page cache, 0 does not wait.", own=True),
    _broker("adopt.unknown.topics", _B, None, "", ANY, "Whether partition directories that the registry does not know are adopted; otherwise they are renamed -stray. Unset: only while no registry exists.", own=True),
    _broker("create.missing.partitions", _B, False, "", ANY, "Whether partitions that no log directory holds are created again, empty, and missing log directories are forgotten. Use it for one start, when the records are lost for good. Otherwise such partitions stay out of service.", own=True),
    _broker("log.dir.min.free.bytes", _L, 67_108_864, "bytes", _NEVER_NEGATIVE, "Free space below which a log directory refuses appends, so that retention, deletions and checkpoints have room. Appends resume when an eighth more is free. 0: appends are refused only by a full disk.", own=True),
    _broker("log.dir.max.open.files", _I, 4_096, "files", Valid(low=OPEN_FILES_MIN), "Maximum number of segment files per log directory that stay open for the next read or append. Unsynced files (3 per partition) and files in use are additional. At most half of the process's descriptors over all directories.", own=True),
    _broker("log.recovery.corruption", _S, "keep", "", Valid(words=("keep", "kafka")), "What recovery does at a bad batch that is followed by good ones: keep retains the rest and marks the range, kafka truncates there.", own=True),
    _broker("log.retention.check.interval.ms", _L, 300_000, "ms", _POSITIVE, "Period of the retention check."),
    _broker("archive.hold.gives.way.when.full", _B, False, "", ANY, "Whether archive.hold is suspended for a log directory that refuses appends (log.dir.min.free.bytes). Records that are not archived are then deleted by their limits, with a warning. Otherwise appends stay refused until the archive has caught up.", own=True),
    _broker("log.retention.clock.guard", _B, True, "", ANY, "Whether the next check deletes nothing of a log after the wall clock jumped ahead by more than its retention.ms, and a log that would lose more than half of its bytes waits for kafkalog retention run --accept-clock. A clock that was changed while the machine was off is not detected.", own=True),
    _broker("log.dir.failure.timeout.ms", _L, 30_000, "ms", _POSITIVE, "Accepted for compatibility with Kafka; there is no controller.", effective=False),
    _broker("cordoned.log.dirs", _LIST, (), "", ANY, "Log directories that get no new partitions, or * for all. If all are cordoned, the first one gets them (Kafka 4.3).", dynamic=True),
    _broker("metrics.records.max.bytes.per.second", _L, 33_554_432, "bytes/s", _NEVER_NEGATIVE, "Maximum rate of reads that count records for kafkalog_log_records: each segment once after a start, then what is appended. 0: records are not counted.", own=True),
    _broker("log.cleaner.enable", _B, True, "", ANY, "Whether compaction and the retention of compacted topics run."),
    _broker("log.cleaner.threads", _I, 1, "threads", _NEVER_NEGATIVE, "Number of cleaner threads; 0: none. At run time at least 1, and between half and double the current number.", dynamic=True),
    _broker("log.cleaner.dedupe.buffer.size", _L, 134_217_728, "bytes", ANY, "Memory for the offset maps of all cleaner threads, more than 1 MiB each. It is allocated at the first clean.", dynamic=True),
    _broker("log.cleaner.io.buffer.size", _I, 524_288, "bytes", _NEVER_NEGATIVE, "Memory for the read and write buffers of all cleaner threads.", dynamic=True),
    _broker("log.cleaner.io.buffer.load.factor", _D, 0.9, "ratio", ANY, "Maximum load of an offset map; above 0, at most 1.", dynamic=True),
    _broker("log.cleaner.io.max.bytes.per.second", _D, DOUBLE_MAX, "bytes/s", ANY, "Maximum bytes per second that all cleaner threads read and write together, above 0. Any second has at most 1.2 times as many.", dynamic=True),
    _broker("log.cleaner.backoff.ms", _L, 15_000, "ms", _NEVER_NEGATIVE, "Pause of a cleaner thread that found nothing to clean, and of a log after a failed clean.", dynamic=True),
    _broker("log.cleaner.tombstone.horizon", _S, "batch", "", Valid(words=("batch", "segment")), "When a tombstone may be deleted: after the delete horizon of its batch, which the first clean sets, or by the age of the last clean segment, as before Kafka 3.1.", own=True),
)

SERVER_SETTINGS: tuple[Setting, ...] = (
    _server("http.host", _S, "127.0.0.1", "", ANY, "Address to listen on. An address that other machines can reach needs authentication, or an explicit http.auth=none."),
    _server("http.port", _I, 8082, "", _PORT, "Port of the API, probes and metrics; 0 chooses a free one."),
    _server("http.auth", _LIST, None, "", Valid(words=("none", "basic", "bearer", "jwt", "mtls")), "How clients authenticate; several are possible: basic (password), bearer (token), jwt (signed token of an identity provider), mtls (client certificate). none, alone, switches authentication off on any address."),
    _server("http.auth.file", _S, None, "", ANY, "File with the credentials for basic and bearer. Other users may not be able to read it. It is read again when it changes."),
    _server("http.auth.tries.per.minute", _I, 10, "tries", _POSITIVE, "Number of wrong credentials that an address may present per minute before it has to wait."),
    _server("http.mtls.principal", _LIST, ("cn",), "", Valid(words=("cn", "dns", "email", "uri")), "Fields of a client certificate that name its principal: the subject's common name or an alternative name. The first that the certificate has counts."),
    _server("http.jwt.jwks.file", _S, None, "", ANY, "For jwt: file with the public keys (a JSON Web Key Set) that verify tokens. It is read again when it changes."),
    _server("http.jwt.issuer", _S, None, "", ANY, "For jwt: the required value of a token's iss."),
    _server("http.jwt.audience", _LIST, (), "", ANY, "For jwt: a token's aud must equal or contain one of these values."),
    _server("http.jwt.principal.claim", _S, "sub", "", ANY, "For jwt: the claim that names the principal."),
    _server("http.jwt.clock.skew.ms", _I, 30_000, "ms", _NEVER_NEGATIVE, "For jwt: how far the clocks of the daemon and the issuer may differ. A token is accepted that long before and after its validity."),
    _server("http.jwt.algorithms", _LIST, ("RS256", "RS384", "RS512", "ES256", "ES384", "EdDSA"), "", Valid(words=("RS256", "RS384", "RS512", "ES256", "ES384", "EdDSA")), "For jwt: accepted signature algorithms."),
    _server("http.tls.cert.file", _S, None, "", ANY, "Certificate chain of http.port in PEM format; if set, the port serves HTTPS only. The files of TLS are read again when they change."),
    _server("http.tls.key.file", _S, None, "", ANY, "Private key of the certificate in PEM format, without a password. Other users may not be able to read it."),
    _server("http.tls.client.ca.file", _S, None, "", ANY, "Certificate authorities, in PEM format, whose client certificates mtls accepts."),
    _server("http.tls.min.version", _S, "1.2", "", Valid(words=("1.2", "1.3")), "Oldest accepted version of TLS."),
    _server("http.tls.handshake.timeout.ms", _I, 10_000, "ms", _POSITIVE, "Maximum time for a TLS handshake."),
    _server("http.acl.file", _S, None, "", ANY, "File with the access rules. Unset: every client that http.auth admits may do everything. It is read again when it changes."),
    _server("http.metrics.open", _B, False, "", ANY, "Whether /metrics is served without credentials, like the probes."),
    _server("access.control.allow.origin", _LIST, (), "", ANY, "CORS: origins whose web pages may read answers, or * for all; empty: none."),
    _server("access.control.allow.methods", _LIST, ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"), "", ANY, "CORS: methods that those pages may use."),
    _server("access.control.allow.headers", _LIST, ("Accept", "Authorization", "Content-Type", "Kafka-Acks", "Kafka-Base-Sequence", "Kafka-Key", "Kafka-Producer-Epoch", "Kafka-Producer-Id", "Last-Event-ID", "Prefer", "X-Request-Id"), "", ANY, "CORS: request headers that those pages may send."),
    _server("http.allowed.hosts", _LIST, (), "", ANY, "Host names that requests may use (the Host header without its port), against DNS rebinding: a name, .domain or *.domain for all names of a domain, * for all. Addresses, localhost, the machine's own names, names without a dot and names under .localhost, .local, .internal and .svc are always accepted. Probes and /metrics accept all names. Empty: with authentication all names are accepted, without it no further ones."),
    _server("metrics.port", _I, None, "", _PORT, "Separate port for /metrics; http.port then does not serve it. Unset: none. Probes are on all ports."),
    _server("metrics.host", _S, "127.0.0.1", "", ANY, "Address of metrics.port. The rule of http.host applies."),
    _server("metrics.kafka.aliases", _B, True, "", ANY, "Whether /metrics also has the names that the JMX exporter with Strimzi's rules gives Kafka's metrics (kafka_*)."),
    _server("metrics.kafka.exporter.names", _B, False, "", ANY, "Whether /metrics also has kafka_exporter's names for offsets and groups (kafka_topic_*, kafka_consumergroup_*), which repeat other series. Requires metrics.kafka.aliases."),
    _server("metrics.partition.level", _S, "partition", "", Valid(words=("partition", "topic", "none")), "Granularity of series: per partition, per topic (sums, without offsets), or none with a topic label."),
    _server("metrics.partition.limit", _I, 2_000, "partitions", _NEVER_NEGATIVE, "Above this number of partitions, metrics.partition.level=partition acts as topic, with a warning and kafkalog_metrics_degraded 1. Above this number of pairs of group and topic, groups have series without a topic. 0: no limit."),
    _server("metrics.topic.include", _S, None, "", ANY, "Regular expression (Python's) that a topic's whole name must match for it to have series. Unset: all topics have."),
    _server("metrics.topic.exclude", _S, None, "", ANY, "Regular expression for names of topics without series. It overrides metrics.topic.include."),
    _server("admin.port", _I, None, "", _PORT, "Separate port for the administrative routes (create, delete, alter, operate); http.port then does not serve them. Unset: none."),
    _server("admin.host", _S, "127.0.0.1", "", ANY, "Address of admin.port. The rule of http.host applies."),
    _server("console.records", _B, True, "", ANY, "Whether the web console shows records. The API always serves them."),
    _server("socket.request.max.bytes", _I, 104_857_600, "bytes", _POSITIVE, "Maximum size of a request body after decompression.", own=False),
    _server("queued.max.request.bytes", _L, 268_435_456, "bytes", _POSITIVE, "Maximum bytes of requests in memory at once, in the HTTP server and in the queue of each log directory. Further requests are refused as retriable. Differs from Kafka: bounded by default, -1 is refused.", own=False),
    _server("max.decompressed.batch.bytes", _L, 67_108_864, "bytes", _POSITIVE, "Maximum size of a batch after decompression."),
    _server("http.max.inflight.requests", _I, 1_000, "requests", _POSITIVE, "Maximum number of requests in progress, without waiting fetches. Further ones are refused as retriable."),
    _server("http.max.requests.per.second", _I, 0, "requests/s", _NEVER_NEGATIVE, "Maximum requests per second of a principal, or of an address without authentication. Further ones are refused as retriable. 0: no limit."),
    _server("http.max.bytes.per.second", _L, 0, "bytes/s", _NEVER_NEGATIVE, "Maximum bytes per second of a principal or address, bodies and answers together. Requests above it are refused until the rate allows them. 0: no limit."),
    _server("http.max.streams", _I, 1_000, "requests", _POSITIVE, "Maximum number of waiting requests (long poll) and open streams. Further ones are refused as retriable."),
    _server("http.stream.max.ms", _I, 600_000, "ms", _POSITIVE, "Maximum lifetime of a stream (server-sent events, lines). Its client then reconnects and continues."),
    _server("http.max.records", _I, 100_000, "records", _POSITIVE, "Maximum number of records in a JSON produce request."),
    _server("http.max.batch.entries", _I, 1_000, "records", _POSITIVE, "Maximum number of entries in a records:batch request of v3."),
    _server("http.max.wait.ms", _I, 60_000, "ms", _NEVER_NEGATIVE, "Maximum time that a fetch waits for records. Larger values in requests are reduced to it."),
    _server("http.v2.dialect", _S, "auto", "", Valid(words=("auto", "confluent", "strimzi", "karapace")), "Dialect of the v2 API where the proxies answer differently: Confluent's REST Proxy, the Strimzi Bridge, Karapace, or, with auto, the one that a media type or the creation of an instance suggests."),
    _server("http.trusted.proxies", _LIST, (), "", ANY, "Addresses or networks (10.0.0.0/8) of proxies whose Forwarded and X-Forwarded-* headers are trusted."),
    _server("http.max.fetch.bytes", _I, 67_108_864, "bytes", _POSITIVE, "Maximum bytes of a fetch answer. Larger values in requests are reduced to it."),
    _server("fetch.raw.verify", _S, "first", "", Valid(words=("first", "always")), "When the CRC of batches is checked that a fetch of raw batches returns: first is once for an open file, as long as its bytes stay in the page cache; always is at each fetch, also of clients that check it themselves."),
    _server("http.body.timeout.ms", _I, 30_000, "ms", _POSITIVE, "Maximum time for a request body to arrive, plus one second for each MiB of its declared length."),
    _server("http.header.timeout.ms", _I, 10_000, "ms", _POSITIVE, "Maximum time for a request's header to arrive."),
    _server("http.write.stall.ms", _I, 90_000, "ms", _POSITIVE, "A client whose kernel acknowledges no byte of its answer for this time is disconnected; a slow client is not. Kernels may acknowledge only every 64 KiB: on one machine, a smaller value disconnects a client that reads 1 KB/s."),
    _server("http.stall.ms", _I, None, "ms", _POSITIVE, "Former name of http.write.stall.ms. It overrides that key."),
    _server("max.connections", _I, 2_147_483_647, "connections", _NEVER_NEGATIVE, "Maximum number of connections. Further ones are closed immediately.", own=False),
    _server("connections.max.idle.ms", _L, 600_000, "ms", _POSITIVE, "Idle time after which a connection is closed.", own=False),
    _server("shutdown.grace.ms", _I, 0, "ms", _NEVER_NEGATIVE, "Time between the first 503 of /readyz and the closing of the port, so that load balancers notice the stop."),
    _server("unusable.log.dirs.wait", _B, False, "", ANY, "Whether a daemon stays up, alive but not ready, when its log directories are damaged beyond repair or do not belong together. Otherwise it exits with status 65. For containers, which would be restarted repeatedly."),
    _server("log.format", _S, None, "", Valid(words=("json", "console")), "Format of log lines. Unset: console on a terminal, json elsewhere."),
    _server("log.level", _S, "info", "", Valid(words=("debug", "info", "warning", "error")), "Minimum level of log lines."),
)
# fmt: on


BROKER_LEVEL: dict[str, Setting] = {
    setting.key: setting
    for setting in (*BROKER_SETTINGS, *TOPIC_DEFAULT_SETTINGS, *SERVER_SETTINGS)
}
TOPIC_LEVEL: dict[str, Setting] = {setting.key: setting for setting in TOPIC_SETTINGS}

# Kafka's keys about what kafkalog has not: named once at start, then ignored.
NOT_APPLICABLE_PREFIXES = (
    "listener", "advertised.", "inter.broker.", "control.plane.", "controller.", "process.roles", "broker.",
    "metadata.", "sasl.", "ssl.", "security.", "socket.", "connections.", "max.connection", "zookeeper.",
    "replica.", "leader.", "follower.", "default.replication.", "group.", "offsets.",
    "transaction.", "transactional.", "share.", "quota.", "num.network.", "num.io.threads", "num.replica.",
    "queued.max.requests", "fetch.", "request.", "delegation.", "authorizer.", "principal.", "super.users",
    "allow.everyone.", "metric.", "metrics.num.", "metrics.sample.", "metrics.recording.", "auto.leader.",
    "auto.include.jmx", "kafka.metrics.", "remote.", "early.start.", "initial.broker.", "confluent.",
    "unstable.", "client.quota.", "config.providers", "password.", "telemetry.", "alter.config.", "create.topic.",
    "delete.topic.", "reserved.broker.", "rack", "max.incremental.", "max.request.partition.",
    "log.message.format.", "log.message.downconversion.", "log.message.timestamp.difference.", "log.cleaner.hash.",
    "internal.", "num.alter.", "replication.", "producer.id.quota.",
)  # fmt: skip
