# ruff: noqa: E501, PLR0913 - one line per key reads as a table; a row has that many columns
"""Every configuration key kafkalog knows: the declaration tables, nothing else.

Owns names, defaults, types, units, ranges, synonyms and the sentence an operator reads. Sources:
Kafka 4.1 ``LogConfig``, ``ServerLogConfigs``, ``CleanerConfig``, ``KafkaConfig``; kafkalog's own keys
are marked. A key with ``effective=False`` is accepted and checked but changes nothing in this
release; its sentence says so (see ``NO_EFFECT``) and one log line tells when somebody sets it.
"""

from __future__ import annotations

from kafkalog.broker.broker_config import OPEN_FILES_MIN
from kafkalog.format.integers import INT64_MAX
from kafkalog.settings.setting import (
    ANY,
    DOUBLE_MAX,
    Kind,
    Scope,
    Setting,
    Synonym,
    Valid,
    Value,
)

NO_EFFECT = "Accepted for later use: no effect in this release."

_MIB = 1_048_576
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


def _topic(
    key: str,
    kind: Kind,
    default: Value,
    unit: str,
    valid: Valid,
    doc: str,
    *synonyms: str | Synonym,
    effective: bool = True,
    own: bool = False,
    internal: bool = False,
    field: str | None = None,
) -> Setting:
    """A topic key; its field of LogConfig is the key with underscores ("" when there is none)."""
    chain = tuple(Synonym(name) if isinstance(name, str) else name for name in synonyms)
    name = key.replace(".", "_") if field is None else field
    text = doc if effective else f"{doc} {NO_EFFECT}"
    return Setting(
        key, kind, default, unit, valid, Scope.TOPIC, name, text,
        dynamic=True, effective=effective, own=own, internal=internal, synonyms=chain,
    )  # fmt: skip


def _fallback(
    key: str, kind: Kind, default: Value, unit: str, valid: Valid, topic_key: str,
    *, dynamic: bool = True, effective: bool = True,
) -> Setting:  # fmt: skip
    """A broker key whose only work is to give a topic key its default."""
    doc = f"Default of the topic key {topic_key}."
    text = doc if effective else f"{doc} {NO_EFFECT}"
    return Setting(
        key, kind, default, unit, valid, Scope.TOPIC_DEFAULT, "", text,
        dynamic=dynamic, effective=effective,
    )  # fmt: skip


def _broker(
    key: str, kind: Kind, default: Value, unit: str, valid: Valid, doc: str,
    *, dynamic: bool = False, effective: bool = True, own: bool = False, field: str | None = None,
) -> Setting:  # fmt: skip
    """A key of BrokerConfig, or of nothing yet when it has no effect."""
    name = (key.replace(".", "_") if effective else "") if field is None else field
    text = doc if effective else f"{doc} {NO_EFFECT}"
    return Setting(
        key, kind, default, unit, valid, Scope.BROKER, name, text,
        dynamic=dynamic, effective=effective, own=own,
    )  # fmt: skip


def _server(
    key: str, kind: Kind, default: Value, unit: str, valid: Valid, doc: str,
    *, effective: bool = True, own: bool = True,
) -> Setting:  # fmt: skip
    """A key of ServerConfig."""
    text = doc if effective else f"{doc} {NO_EFFECT}"
    return Setting(
        key, kind, default, unit, valid, Scope.SERVER, key.replace(".", "_"), text,
        effective=effective, own=own,
    )  # fmt: skip


_B, _I, _L, _D, _S, _LIST = (
    Kind.BOOLEAN, Kind.INT, Kind.LONG, Kind.DOUBLE, Kind.STRING, Kind.LIST,
)  # fmt: skip
_HOURS = 3_600_000
_MINUTES = 60_000

# fmt: off
TOPIC_SETTINGS: tuple[Setting, ...] = (
    _topic("cleanup.policy", _LIST, ("delete",), "", _POLICIES, "How old data goes: delete by time and size, compact by key, or both. Only delete allows delete-records.", "log.cleanup.policy"),
    _topic("segment.bytes", _I, 1_073_741_824, "bytes", Valid(low=_MIB), "Size at which a segment rolls.", "log.segment.bytes"),
    _topic("internal.segment.bytes", _I, None, "bytes", _POSITIVE, "For tests: beats segment.bytes and may be smaller than 1 MiB.", internal=True),
    _topic("segment.ms", _L, 604_800_000, "ms", _POSITIVE, "Age, by record timestamps, at which a segment rolls.", "log.roll.ms", Synonym("log.roll.hours", _HOURS)),
    _topic("segment.jitter.ms", _L, 0, "ms", _NEVER_NEGATIVE, "Largest random time taken off segment.ms, so that segments do not all roll at once.", "log.roll.jitter.ms", Synonym("log.roll.jitter.hours", _HOURS)),
    _topic("segment.index.bytes", _I, 10_485_760, "bytes", Valid(low=4), "Size to which the indexes of the active segment are preallocated; a full index rolls.", "log.index.size.max.bytes"),
    _topic("index.interval.bytes", _I, 4_096, "bytes", _NEVER_NEGATIVE, "Bytes of log between two index entries.", "log.index.interval.bytes"),
    _topic("flush.messages", _L, INT64_MAX, "records", _POSITIVE, "Records after which the log is synced, beside what acknowledgements ask for.", "log.flush.interval.messages"),
    _topic("flush.ms", _L, INT64_MAX, "ms", _NEVER_NEGATIVE, "Time after which unsynced records are synced.", "log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    _topic("retention.ms", _L, 604_800_000, "ms", Valid(low=-1), "Age at which segments are deleted; -1 is never.", "log.retention.ms", Synonym("log.retention.minutes", _MINUTES), Synonym("log.retention.hours", _HOURS)),
    _topic("retention.bytes", _L, -1, "bytes", ANY, "Size of a partition above which its oldest segments are deleted; negative is never.", "log.retention.bytes"),
    _topic("max.message.bytes", _I, 1_048_588, "bytes", _NEVER_NEGATIVE, "Largest record batch accepted.", "message.max.bytes"),
    _topic("file.delete.delay.ms", _L, 60_000, "ms", _NEVER_NEGATIVE, "How long a file renamed to .deleted stays before it is removed.", "log.segment.delete.delay.ms"),
    _topic("delete.retention.ms", _L, 86_400_000, "ms", _NEVER_NEGATIVE, "How long tombstones of a compacted topic stay readable.", "log.cleaner.delete.retention.ms"),
    _topic("min.compaction.lag.ms", _L, 0, "ms", _NEVER_NEGATIVE, "Age below which a record is not compacted; at most max.compaction.lag.ms.", "log.cleaner.min.compaction.lag.ms"),
    _topic("max.compaction.lag.ms", _L, INT64_MAX, "ms", _POSITIVE, "Age at which a compacted topic's active segment rolls and becomes eligible for compaction.", "log.cleaner.max.compaction.lag.ms"),
    _topic("min.cleanable.dirty.ratio", _D, 0.5, "ratio", _RATIO, "Share of uncompacted bytes from which a log is compacted.", "log.cleaner.min.cleanable.ratio"),
    _topic("compression.type", _S, "producer", "", _CODECS, "Codec of stored batches; producer keeps what was sent.", "compression.type"),
    _topic("compression.gzip.level", _I, -1, "", _GZIP_LEVELS, "Level when the daemon compresses with gzip; -1 is the library's default.", "compression.gzip.level"),
    _topic("compression.lz4.level", _I, 9, "", _LZ4_LEVELS, "Level when the daemon compresses with lz4.", "compression.lz4.level"),
    _topic("compression.zstd.level", _I, 3, "", _ZSTD_LEVELS, "Level when the daemon compresses with zstd.", "compression.zstd.level"),
    _topic("preallocate", _B, False, "", ANY, "Whether a new segment file gets its full size at once.", "log.preallocate"),
    _topic("message.timestamp.type", _S, "CreateTime", "", _TIMESTAMP_TYPES, "Whose clock stamps a record: the producer's or the daemon's at append.", "log.message.timestamp.type"),
    _topic("message.timestamp.before.max.ms", _L, INT64_MAX, "ms", _NEVER_NEGATIVE, "How far a record's timestamp may lie in the past.", "log.message.timestamp.before.max.ms"),
    _topic("message.timestamp.after.max.ms", _L, 3_600_000, "ms", _NEVER_NEGATIVE, "How far a record's timestamp may lie in the future.", "log.message.timestamp.after.max.ms"),
    _topic("min.insync.replicas", _I, 1, "", _POSITIVE, "Kept for Kafka; there is always one replica.", "min.insync.replicas", effective=False),
    _topic("unclean.leader.election.enable", _B, False, "", ANY, "Kept for Kafka; there are no elections.", "unclean.leader.election.enable", effective=False),
    _topic("remote.storage.enable", _B, False, "", ANY, "Kept for Kafka; there is no tiered storage.", effective=False),
    _topic("remote.log.copy.disable", _B, False, "", ANY, "Kept for Kafka; there is no tiered storage.", effective=False, field=""),
    _topic("remote.log.delete.on.disable", _B, False, "", ANY, "Kept for Kafka; there is no tiered storage.", effective=False, field=""),
    _topic("local.retention.ms", _L, -2, "ms", Valid(low=-2), "Kept for Kafka; there is no tiered storage.", "log.local.retention.ms", effective=False),
    _topic("local.retention.bytes", _L, -2, "bytes", Valid(low=-2), "Kept for Kafka; there is no tiered storage.", "log.local.retention.bytes", effective=False),
    _topic("leader.replication.throttled.replicas", _LIST, (), "", ANY, "Kept for Kafka; there is no replication.", effective=False, field=""),
    _topic("follower.replication.throttled.replicas", _LIST, (), "", ANY, "Kept for Kafka; there is no replication.", effective=False, field=""),
    _topic("http.produce.acks", _S, None, "", _ACKS, "Durability class of a produce to the topic that names none; unset leaves it to the daemon's http.produce.acks.", own=True),
    _topic("quota.bytes", _L, -1, "bytes", Valid(low=-1), "Most bytes of the .log files of all partitions of the topic together: an append that would pass it is refused until retention or a deletion makes room; -1 is no quota.", own=True),
    _topic("archive.hold", _B, False, "", ANY, "Whether retention by time and size waits until an archive has the records: nothing at or above a partition's archived offset goes by them. Delete-records and compaction do not wait.", own=True),
    _topic("archive.hold.max.bytes", _L, -1, "bytes", Valid(low=-1), "Most bytes that archive.hold keeps in a partition of what time and size would delete; beyond it the oldest go without being archived, with a warning; -1 keeps all.", own=True),
)

TOPIC_DEFAULT_SETTINGS: tuple[Setting, ...] = (
    _fallback("log.cleanup.policy", _LIST, ("delete",), "", _POLICIES, "cleanup.policy"),
    _fallback("log.segment.bytes", _I, 1_073_741_824, "bytes", Valid(low=_MIB), "segment.bytes"),
    _fallback("log.roll.ms", _L, None, "ms", _POSITIVE, "segment.ms"),
    _fallback("log.roll.hours", _I, 168, "hours", _POSITIVE, "segment.ms", dynamic=False),
    _fallback("log.roll.jitter.ms", _L, None, "ms", _NEVER_NEGATIVE, "segment.jitter.ms"),
    _fallback("log.roll.jitter.hours", _I, 0, "hours", _NEVER_NEGATIVE, "segment.jitter.ms", dynamic=False),
    _fallback("log.index.size.max.bytes", _I, 10_485_760, "bytes", Valid(low=4), "segment.index.bytes"),
    _fallback("log.index.interval.bytes", _I, 4_096, "bytes", _NEVER_NEGATIVE, "index.interval.bytes"),
    _fallback("log.flush.interval.messages", _L, INT64_MAX, "records", _POSITIVE, "flush.messages"),
    _fallback("log.flush.interval.ms", _L, None, "ms", _NEVER_NEGATIVE, "flush.ms"),
    _fallback("log.retention.ms", _L, None, "ms", ANY, "retention.ms (0 is refused here; negative is never)"),
    _fallback("log.retention.minutes", _I, None, "minutes", ANY, "retention.ms (0 is refused here; negative is never)", dynamic=False),
    _fallback("log.retention.hours", _I, 168, "hours", ANY, "retention.ms (0 is refused here; negative is never)", dynamic=False),
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
    _broker("log.dirs", _LIST, None, "", ANY, "Directories of the logs, separated by commas; beats log.dir."),
    _broker("log.dir", _S, "/tmp/kafka-logs", "", ANY, "Directory of the logs when log.dirs is not set.", field="log_dirs"),
    _broker("node.id", _I, 1, "", _NEVER_NEGATIVE, "Written to a new directory's meta.properties; adopted directories keep theirs. Kafka has no usable default."),
    _broker("num.partitions", _I, 1, "", _POSITIVE, "Partitions of a topic created without a count."),
    _broker("max.partitions.per.topic", _I, 10_000, "partitions", _POSITIVE, "Most partitions of a topic that is created; a larger count is refused.", own=True),
    _broker("auto.create.topics.enable", _B, True, "", ANY, "Whether producing to an unknown topic creates it."),
    _broker("num.recovery.threads.per.data.dir", _I, 2, "threads", _POSITIVE, "Threads per directory that load and recover logs at start and close them at stop.", dynamic=True),
    _broker("background.threads", _I, 10, "threads", _POSITIVE, "Threads of the scheduler of periodic tasks.", dynamic=True),
    _broker("log.flush.scheduler.interval.ms", _L, INT64_MAX, "ms", _POSITIVE, "Period of the task that syncs logs whose flush.ms has passed; also the default of flush.ms."),
    _broker("log.flush.offset.checkpoint.interval.ms", _I, 60_000, "ms", _NEVER_NEGATIVE, "Period of writing recovery-point-offset-checkpoint."),
    _broker("log.flush.start.offset.checkpoint.interval.ms", _I, 60_000, "ms", _NEVER_NEGATIVE, "Period of writing log-start-offset-checkpoint."),
    _broker("log.initial.task.delay.ms", _L, 30_000, "ms", _NEVER_NEGATIVE, "Delay of the first run of the periodic tasks."),
    _broker("replica.high.watermark.checkpoint.interval.ms", _L, 5_000, "ms", _POSITIVE, "Period of writing replication-offset-checkpoint."),
    _broker("replica.alter.log.dirs.io.max.bytes.per.second", _L, INT64_MAX, "bytes/s", _POSITIVE, "Limit of what all moves of partitions between log directories copy together. Kafka takes it at run time only.", dynamic=True),
    _broker("producer.id.expiration.ms", _I, 86_400_000, "ms", _POSITIVE, "Idle time after which an idempotent producer's state is forgotten.", dynamic=True),
    _broker("producer.id.expiration.check.interval.ms", _I, 600_000, "ms", _POSITIVE, "Period of looking for expired producers."),
    _broker("offsets.topic.num.partitions", _I, 50, "partitions", _POSITIVE, "Partitions of __consumer_offsets when the first commit makes it."),
    _broker("offsets.topic.segment.bytes", _I, 104_857_600, "bytes", Valid(low=_MIB), "segment.bytes of __consumer_offsets when the first commit makes it. Differs from Kafka: at least 1 MiB, as for every topic."),
    _broker("offsets.commit.required.acks", _I, -1, "", Valid(low=-1, high=1), "When a group's commit is answered: -1 waits for the disk, 0 and 1 for the page cache."),
    _broker("offsets.retention.minutes", _I, 10_080, "minutes", _POSITIVE, "How long a group's offsets outlive its last commit and its last member."),
    _broker("offsets.retention.check.interval.ms", _L, 600_000, "ms", _POSITIVE, "Period of looking for expired offsets of groups."),
    _broker("offset.metadata.max.bytes", _I, 4_096, "bytes", _NEVER_NEGATIVE, "Longest metadata of a commit."),
    _broker("transaction.max.timeout.ms", _I, 900_000, "ms", _POSITIVE, "How long the batch of an exactly-once sink may be open while nobody begins in it or appends to it; then it is aborted. Differs from Kafka, where a transaction's whole length counts."),
    _broker("transaction.abort.timed.out.transaction.cleanup.interval.ms", _I, 10_000, "ms", _POSITIVE, "Period of looking for such batches, and of writing markers that could not be written at once."),
    _broker("transactional.id.expiration.ms", _I, 604_800_000, "ms", _POSITIVE, "How long a producer of a sink is known after its last begin, and a query that committed nothing."),
    _broker("transaction.remove.expired.transaction.cleanup.interval.ms", _I, 3_600_000, "ms", _POSITIVE, "Period of looking for queries to forget."),
    _broker("transaction.state.log.segment.bytes", _I, 104_857_600, "bytes", Valid(low=_MIB), "segment.bytes of __sink_state when the first begin makes it. Differs from Kafka: at least 1 MiB, as for every topic."),
    _broker("num.io.threads.per.data.dir", _I, 2, "threads", _POSITIVE, "Threads per directory that read what is not in the page cache.", own=True),
    _broker("consumer.instance.timeout.ms", _I, 300_000, "ms", _POSITIVE, "Idle time after which a consumer instance of the v2 API leaves its group, as in the REST proxies.", own=True),
    _broker("http.produce.acks", _S, "all", "", _ACKS, "Durability class of a produce that names none: all waits for the disk, 1 for the page cache, 0 for nothing.", own=True),
    _broker("adopt.unknown.topics", _B, None, "", ANY, "Whether partition directories unknown to the registry are adopted; else they become -stray. Unset: only while no registry exists.", own=True),
    _broker("create.missing.partitions", _B, False, "", ANY, "Whether partitions that no log directory holds are made anew, empty, and log directories that are not there are forgotten. For one start, when their records are gone for good; else such partitions stay out of service.", own=True),
    _broker("log.dir.min.free.bytes", _L, 67_108_864, "bytes", _NEVER_NEGATIVE, "Free space below which a directory refuses appends, so that retention, deletions and checkpoints have room; they resume when an eighth more is free. 0: only a disk that is really full refuses them.", own=True),
    _broker("log.dir.max.open.files", _I, 4_096, "files", Valid(low=OPEN_FILES_MIN), "Segment files of a directory that are kept open for the next read or append, whatever the number of segments; unsynced ones (3 a partition) and those that a request uses come on top. At most half of the process's descriptors, over all directories.", own=True),
    _broker("log.recovery.corruption", _S, "keep", "", Valid(words=("keep", "kafka")), "A bad batch with good ones after it, met in recovery: keep the rest and mark the range, or truncate there as Kafka does.", own=True),
    _broker("log.retention.check.interval.ms", _L, 300_000, "ms", _POSITIVE, "Period of the retention task."),
    _broker("archive.hold.gives.way.when.full", _B, False, "", ANY, "Whether archive.hold ends for the partitions of a log directory while that refuses appends (log.dir.min.free.bytes): records that are not archived then go by their limits, with a warning. Else appends stay refused until the archive has caught up.", own=True),
    _broker("log.retention.clock.guard", _B, True, "", ANY, "After the wall clock jumped ahead by more than a log's retention.ms, the next check deletes nothing of it. It does not survive a restart: a clock that was set while the daemon was down looks like a downtime.", own=True),
    _broker("log.dir.failure.timeout.ms", _L, 30_000, "ms", _POSITIVE, "Kept for Kafka; there is no controller to tell.", effective=False),
    _broker("cordoned.log.dirs", _LIST, (), "", ANY, "Directories of log.dirs that get no new partitions, or * for all; when all are cordoned the first one gets them (Kafka 4.3).", dynamic=True),
    _broker("metrics.records.max.bytes.per.second", _L, 33_554_432, "bytes/s", _NEVER_NEGATIVE, "How fast, at most, segments are read to count their records for kafkalog_log_records: each once after a start, then what is appended. 0: records are not counted.", own=True),
    _broker("log.cleaner.enable", _B, True, "", ANY, "Whether compaction runs, and with it the retention of compacted topics."),
    _broker("log.cleaner.threads", _I, 1, "threads", _NEVER_NEGATIVE, "Compaction threads; 0: none runs. At run time at least 1, and between half and double of what runs.", dynamic=True),
    _broker("log.cleaner.dedupe.buffer.size", _L, 134_217_728, "bytes", ANY, "Memory for the offset maps of all compaction threads; more than 1 MiB each, taken at the first clean.", dynamic=True),
    _broker("log.cleaner.io.buffer.size", _I, 524_288, "bytes", _NEVER_NEGATIVE, "Memory for the read and write buffers of all compaction threads.", dynamic=True),
    _broker("log.cleaner.io.buffer.load.factor", _D, 0.9, "ratio", ANY, "How full an offset map may become; above 0, at most 1.", dynamic=True),
    _broker("log.cleaner.io.max.bytes.per.second", _D, DOUBLE_MAX, "bytes/s", ANY, "Limit of the reads and writes of all compaction threads together; above 0.", dynamic=True),
    _broker("log.cleaner.backoff.ms", _L, 15_000, "ms", _NEVER_NEGATIVE, "Pause of a compaction thread that found nothing to do, and of a log after a clean that failed.", dynamic=True),
    _broker("log.cleaner.tombstone.horizon", _S, "batch", "", Valid(words=("batch", "segment")), "What ends a tombstone's life: the horizon of its batch, which its first clean sets, or the age of the last clean segment, as before Kafka 3.1.", own=True),
)

SERVER_SETTINGS: tuple[Setting, ...] = (
    _server("http.host", _S, "127.0.0.1", "", ANY, "Address to listen on. One that others can reach needs authentication, or http.auth=none spelled out."),
    _server("http.port", _I, 8082, "", _PORT, "Port of the API, probes and metrics; 0 takes a free one."),
    _server("http.auth", _LIST, None, "", Valid(words=("none", "basic", "bearer", "jwt", "mtls")), "How clients prove who they are, several at once: basic (password), bearer (token), jwt (signed token of an identity provider), mtls (client certificate); none alone: not at all, on any address, knowingly."),
    _server("http.auth.file", _S, None, "", ANY, "File of the credentials for basic and bearer; not readable by everybody. Read again when it changes."),
    _server("http.auth.tries.per.minute", _I, 10, "tries", _POSITIVE, "Wrong credentials that an address may present in a minute; then it has to wait."),
    _server("http.mtls.principal", _LIST, ("cn",), "", Valid(words=("cn", "dns", "email", "uri")), "Where a client certificate names its principal: the subject's common name or an alternative name; the first of the list that it has."),
    _server("http.jwt.jwks.file", _S, None, "", ANY, "For jwt: file of the public keys (a JSON Web Key Set) that its tokens are checked with. Read again when it changes."),
    _server("http.jwt.issuer", _S, None, "", ANY, "For jwt: what a token's iss must be."),
    _server("http.jwt.audience", _LIST, (), "", ANY, "For jwt: a token's aud must be, or hold, one of these."),
    _server("http.jwt.principal.claim", _S, "sub", "", ANY, "For jwt: the claim that names the principal."),
    _server("http.jwt.clock.skew.ms", _I, 30_000, "ms", _NEVER_NEGATIVE, "For jwt: how far the clocks of the daemon and of the issuer may differ; a token counts that long before and after its time."),
    _server("http.jwt.algorithms", _LIST, ("RS256", "RS384", "RS512", "ES256", "ES384", "EdDSA"), "", Valid(words=("RS256", "RS384", "RS512", "ES256", "ES384", "EdDSA")), "For jwt: signature algorithms that are taken."),
    _server("http.tls.cert.file", _S, None, "", ANY, "Certificate chain of http.port in PEM: TLS instead of plain HTTP. The files of TLS are read again when they change."),
    _server("http.tls.key.file", _S, None, "", ANY, "Private key of the certificate, in PEM without a password; not readable by everybody."),
    _server("http.tls.client.ca.file", _S, None, "", ANY, "Authorities, in PEM, whose client certificates mtls believes."),
    _server("http.tls.min.version", _S, "1.2", "", Valid(words=("1.2", "1.3")), "Oldest version of TLS that is spoken."),
    _server("http.tls.handshake.timeout.ms", _I, 10_000, "ms", _POSITIVE, "Longest time for a TLS handshake."),
    _server("http.acl.file", _S, None, "", ANY, "File of the access rules; unset: whoever may come in may do everything. Read again when it changes."),
    _server("http.metrics.open", _B, False, "", ANY, "Whether /metrics is served without credentials, as the probes are."),
    _server("access.control.allow.origin", _LIST, (), "", ANY, "CORS: origins whose web pages may read answers, or *; empty: none."),
    _server("access.control.allow.methods", _LIST, ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"), "", ANY, "CORS: methods that those pages may use."),
    _server("access.control.allow.headers", _LIST, ("Accept", "Authorization", "Content-Type", "Kafka-Acks", "Kafka-Base-Sequence", "Kafka-Key", "Kafka-Producer-Epoch", "Kafka-Producer-Id", "Last-Event-ID", "Prefer", "X-Request-Id"), "", ANY, "CORS: request headers that those pages may send."),
    _server("http.allowed.hosts", _LIST, (), "", ANY, "Names by which requests may ask for the daemon (their Host, its port aside), against DNS rebinding: a name, .domain or *.domain for all names under it, * for any. Addresses, localhost, the machine's own names, names without a dot and those under .localhost, .local, .internal and .svc are taken in any case; probes and /metrics take all. Empty: no others without authentication, any with it."),
    _server("metrics.port", _I, None, "", _PORT, "A further port for /metrics, which then leaves http.port; unset: none. Probes are on all ports."),
    _server("metrics.host", _S, "127.0.0.1", "", ANY, "Address of metrics.port; the same rule as for http.host."),
    _server("metrics.kafka.aliases", _B, True, "", ANY, "Whether /metrics also has the names that the JMX exporter gives Kafka's metrics (kafka_*), with Strimzi's rules."),
    _server("metrics.kafka.exporter.names", _B, False, "", ANY, "Whether it also has kafka_exporter's names for offsets (kafka_topic_*), which say once more what other series say; only with metrics.kafka.aliases."),
    _server("metrics.partition.level", _S, "partition", "", Valid(words=("partition", "topic", "none")), "Series of each partition, of each topic (sums; no offsets), or none with a topic at all."),
    _server("metrics.partition.limit", _I, 2_000, "partitions", _NEVER_NEGATIVE, "With more partitions than these, metrics.partition.level=partition becomes topic, with a warning and kafkalog_metrics_degraded 1. 0: no limit."),
    _server("metrics.topic.include", _S, None, "", ANY, "Regular expression (Python's) that a topic's whole name has to match to have series; unset: all have."),
    _server("metrics.topic.exclude", _S, None, "", ANY, "Regular expression of the names of topics that have none, whatever metrics.topic.include says."),
    _server("admin.port", _I, None, "", _PORT, "A further port for the administrative routes (those that create, delete, alter or operate), which then leave http.port; unset: none."),
    _server("admin.host", _S, "127.0.0.1", "", ANY, "Address of admin.port; the same rule as for http.host."),
    _server("console.records", _B, True, "", ANY, "Whether the web console shows records; the API does in any case."),
    _server("socket.request.max.bytes", _I, 104_857_600, "bytes", _POSITIVE, "Largest request body, counted after inflation.", own=False),
    _server("queued.max.request.bytes", _L, 268_435_456, "bytes", _POSITIVE, "Request bytes held at once, in the edge and in each directory's queue; more is refused, to be retried. Differs from Kafka: bounded by default, -1 is refused.", own=False),
    _server("max.decompressed.batch.bytes", _L, 67_108_864, "bytes", _POSITIVE, "Largest size of one batch after decompression."),
    _server("http.max.inflight.requests", _I, 1_000, "requests", _POSITIVE, "Requests in work at once, waiting fetches not counted; more are refused, to be retried."),
    _server("http.max.requests.per.second", _I, 0, "requests/s", _NEVER_NEGATIVE, "Requests a second of one principal, or of one address where nobody has a name; more are refused, to be retried. 0: no limit."),
    _server("http.max.bytes.per.second", _L, 0, "bytes/s", _NEVER_NEGATIVE, "Bytes a second, of bodies and answers together, of one principal or address; who has used more has to wait. 0: no limit."),
    _server("http.max.streams", _I, 1_000, "requests", _POSITIVE, "Waiting (long poll) requests and open streams at once; more are refused, to be retried."),
    _server("http.stream.max.ms", _I, 600_000, "ms", _POSITIVE, "Longest life of a stream (server-sent events, lines); its client then comes again and goes on."),
    _server("http.max.records", _I, 100_000, "records", _POSITIVE, "Most records of one JSON produce request."),
    _server("http.max.batch.entries", _I, 1_000, "records", _POSITIVE, "Most entries of one records:batch of v3."),
    _server("http.max.wait.ms", _I, 60_000, "ms", _NEVER_NEGATIVE, "Longest time a fetch may wait for records; larger requests are clamped."),
    _server("http.v2.dialect", _S, "auto", "", Valid(words=("auto", "confluent", "strimzi")), "How consumers of the v2 API commit and are answered: as the REST Proxy, as the Strimzi Bridge, or by what each instance is created with."),
    _server("http.trusted.proxies", _LIST, (), "", ANY, "Addresses or networks (10.0.0.0/8) of proxies whose Forwarded and X-Forwarded-* headers name the address that clients use."),
    _server("http.max.fetch.bytes", _I, 67_108_864, "bytes", _POSITIVE, "Most bytes of one fetch answer; larger requests are clamped."),
    _server("http.body.timeout.ms", _I, 30_000, "ms", _POSITIVE, "Longest time for a request body to arrive, plus one second for each MiB it declares."),
    _server("http.header.timeout.ms", _I, 10_000, "ms", _POSITIVE, "Longest time for a request's header to arrive."),
    _server("http.write.stall.ms", _I, 90_000, "ms", _POSITIVE, "A client that takes nothing of its answer for this time is cut off; one that takes anything, however slowly, is not. The kernels tell of a reader every 64 KiB on one machine, so less cuts one at 1 KB/s there."),
    _server("http.stall.ms", _I, None, "ms", _POSITIVE, "Former name of http.write.stall.ms; goes before it."),
    _server("max.connections", _I, 2_147_483_647, "connections", _NEVER_NEGATIVE, "Connections at once; further ones are closed at once.", own=False),
    _server("connections.max.idle.ms", _L, 600_000, "ms", _POSITIVE, "Idle connections are closed after this time.", own=False),
    _server("shutdown.grace.ms", _I, 0, "ms", _NEVER_NEGATIVE, "Time between turning /readyz to 503 and closing the port, for load balancers to notice."),
    _server("unusable.log.dirs.wait", _B, False, "", ANY, "Whether a daemon whose log directories are damaged beyond proof, or do not belong together, stays up, alive and not ready, instead of ending with status 65: for containers, which would be restarted again and again."),
    _server("log.format", _S, None, "", Valid(words=("json", "console")), "Shape of log lines; unset: console on a terminal, json elsewhere."),
    _server("log.level", _S, "info", "", Valid(words=("debug", "info", "warning", "error")), "Least severe lines to print."),
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
