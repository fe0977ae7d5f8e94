"""Configs of a v2 consumer: those that mean something here, and those that are passed by.

A client of Kafka sends what its own consumer would be given, a client of a proxy what that proxy
takes. What only says how a consumer talks with its brokers has no meaning for an instance that
lives in the daemon. It is accepted, and the answer names it.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from kafkalog.format.suggestions import did_you_mean
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.schemas import Flag, Number, Schema

# org.apache.kafka.clients.consumer.ConsumerConfig.configNames() of Kafka 4.1.
_KAFKA = """
    allow.auto.create.topics bootstrap.servers check.crcs client.dns.lookup client.id
    client.rack connections.max.idle.ms default.api.timeout.ms enable.metrics.push
    exclude.internal.topics fetch.max.bytes fetch.max.wait.ms group.id group.instance.id
    group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
    internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported
    key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms
    sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.mechanism sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes
    session.timeout.ms share.acknowledgement.mode socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
    ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
    ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
    ssl.truststore.location ssl.truststore.password ssl.truststore.type value.deserializer
"""
# Those of Kafka 3.9, and of the consumer that Kafka had until 1.1.
_OLDER_KAFKA = """
    auto.include.jmx.reporter consumer.id consumer.timeout.ms dual.commit.enabled
    fetch.message.max.bytes fetch.wait.max.ms num.consumer.fetchers offsets.channel.backoff.ms
    offsets.channel.socket.timeout.ms offsets.commit.max.retries offsets.storage
    queued.max.message.chunks rebalance.backoff.ms rebalance.max.retries
    refresh.leader.backoff.ms socket.receive.buffer.bytes socket.timeout.ms zookeeper.connect
    zookeeper.connection.timeout.ms zookeeper.session.timeout.ms zookeeper.sync.time.ms
"""
# topic.metadata.refresh.interval.ms is Karapace's, the others are the REST Proxy's own. The Bridge
# and Redpanda's proxy take no config that has no meaning here.
_PROXIES = """
    consumer.instance.timeout.ms consumer.iterator.backoff.ms consumer.iterator.timeout.ms
    consumer.request.max.bytes consumer.threads schema.registry.url
    topic.metadata.refresh.interval.ms
"""
KARAPACE_KEY = "topic.metadata.refresh.interval.ms"
"""Which no other proxy takes."""
IGNORED = frozenset(f"{_KAFKA} {_OLDER_KAFKA} {_PROXIES}".split())
IGNORED_HEADER = "Kafka-Ignored-Configs"
_SHOWN_CHARACTERS = 80


def _describe_names(schema: dict[str, Any]) -> None:
    """In OpenAPI: which names a configuration may have beside the described ones."""
    schema["propertyNames"] = {"enum": [*schema["properties"], *sorted(IGNORED)]}


class NewConsumer(Schema):
    """``POST /consumers/{group}``: the union of what the REST Proxy and the Bridge take.

    Other configs of Kafka's consumer and of the proxies are accepted and ignored.
    """

    model_config = ConfigDict(extra="allow", json_schema_extra=_describe_names)

    id: str | None = None
    name: str | None = None
    format: str = "binary"
    auto_offset_reset: str | None = Field(None, alias="auto.offset.reset")
    auto_commit_enable: Flag | None = Field(None, alias="auto.commit.enable")
    enable_auto_commit: Flag | None = Field(None, alias="enable.auto.commit")
    isolation_level: str | None = Field(None, alias="isolation.level")
    fetch_min_bytes: Number | None = Field(None, alias="fetch.min.bytes")
    response_min_bytes: Number | None = Field(None, alias="responseMinBytes")
    request_timeout_ms: Number | None = Field(None, alias="consumer.request.timeout.ms")
    request_wait_ms: Number | None = Field(None, alias="requestWaitMs")
    auto_commit_interval_ms: Number = Field(5_000, alias="auto.commit.interval.ms")

    def ignored(self) -> list[str]:
        """Names of the configs that change nothing here; ApiError 422 for an unknown one."""
        given = self.model_extra or {}
        problems = tuple(_problem(name) for name in given if name not in IGNORED)
        if problems:
            raise ApiError(422, problems[0], validation_errors=problems)
        return sorted(given)


_MEANT = [each.alias or name for name, each in NewConsumer.model_fields.items()]


def _problem(name: str) -> str:
    shown = name[:_SHOWN_CHARACTERS]
    guess = did_you_mean(shown, [*_MEANT, *sorted(IGNORED)])
    return f"{shown}: a consumer has no such config{guess}"
