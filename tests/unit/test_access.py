"""Goal: rules, credentials, proofs and rates let in whom their documentation names, and nobody
else.
Method: files as an operator writes them, their faults by line; every public operation by its own
declaration; a simulated clock.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import inspect
from typing import TYPE_CHECKING

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given, strategies as st

from kafkalog.broker.access_rules import (
    ALL_ALLOWED,
    AccessRules,
    Action,
    Resource,
    parse_access_rules,
)
from kafkalog.broker.authorized import authorized, need_of, open_to_all, operation_class
from kafkalog.broker.compaction.cleaning import CleaningOperations
from kafkalog.broker.directory.cordon import LogDirOperations
from kafkalog.broker.groups.consumers import ConsumerConfig, ConsumerGroups
from kafkalog.broker.groups.groups import GroupOperations
from kafkalog.broker.groups.offsets import GroupOffsets
from kafkalog.broker.operations import Acks, Operations
from kafkalog.broker.topics.topics import TopicOperations
from kafkalog.broker.transactions.producer_ids import ProducerIds
from kafkalog.errors import (
    ClusterAccessDenied,
    GroupAccessDenied,
    InvalidConfig,
    TopicAccessDenied,
    UnknownTopic,
)
from kafkalog.format.disk.credentials import (
    NO_PASSWORD,
    Credentials,
    PasswordHash,
    basic_line,
    bearer_line,
    decode_credentials,
    login_fault,
    principal_fault,
    token_digest,
)
from kafkalog.format.integers import FormatError
from kafkalog.log.values import Isolation
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.security.authenticators import (
    Authenticators,
    ExpiredToken,
    FailedTries,
    Known,
    RefusedToken,
    Verified,
)
from kafkalog.server.security.gate import AccessFiles
from kafkalog.server.security.rate_limits import TokenBuckets
from kafkalog.settings.settings import load_settings
from tests.sim.sim_manager import SimManager, batch_of, records_of

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path


TOPIC, GROUP, CLUSTER = Resource.TOPIC, Resource.GROUP, Resource.CLUSTER


def test_without_a_file_all_is_allowed_and_with_an_empty_one_nothing() -> None:
    for resource in Resource:
        for action in Action:
            assert ALL_ALLOWED.rights_of("x").allow(action, resource, "any")
            assert not AccessRules().rights_of("x").allow(action, resource, "any")
    with pytest.raises(GroupAccessDenied, match="Not authorized: read group g"):
        AccessRules().rights_of("x").require(Action.READ, GROUP, "g")
    with pytest.raises(ClusterAccessDenied, match=r"Not authorized: alter cluster$"):
        AccessRules().rights_of("x").require(Action.ALTER, CLUSTER)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("permit a read topic t", "begins with allow or deny"),
        ("allow a read topic", "takes a pattern"),
        ("allow a all cluster x", "takes no pattern"),
        ("allow a read", "a rule is:"),
        ("allow a read topic t u", "a rule is:"),
        ("allow a fetch topic t", "'fetch' is not an action; known are: read, write"),
        ("allow a read, topic t", "'' is not an action"),
        ("allow a read queue t", "'queue' is not a resource"),
        ("allow a read topic a*b", "one \\* at its end"),
        ("allow a read topic a**", "one \\* at its end"),
        ("allow a read topic ''", "one \\* at its end"),
        ("allow a* read topic t", "a principal is a name or \\*"),
        ("allow 'a read topic t", "No closing quotation"),
    ],
)
def test_a_fault_names_its_line(line: str, fault: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^line 3: .*{fault}"):
        parse_access_rules(f"# rules\nallow a read topic t\n{line}\n")


CLASSES: tuple[type[object], ...] = (
    Operations,
    TopicOperations,
    CleaningOperations,
    GroupOperations,
    GroupOffsets,
    ConsumerGroups,
    LogDirOperations,
    ProducerIds,
)


def view(sim: SimManager, rules: str, principal: str = "p") -> Operations:
    return authorized(sim.operations, parse_access_rules(rules).rights_of(principal))


def public_operations(kind: type[object]) -> dict[str, object]:
    """Every public method and property, by name."""
    return {
        name: value
        for name, value in inspect.getmembers(kind)
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }


@pytest.mark.parametrize("kind", CLASSES)
def test_every_public_operation_says_what_it_needs(kind: type[object]) -> None:
    """A new operation without a rule fails here, before it fails at a view."""
    for name, method in public_operations(kind).items():
        need = need_of(method)
        assert need is not None, f"{kind.__name__}.{name} needs @requires, @lists or @open_to_all"
        if need.argument:
            assert inspect.isfunction(method)
            assert need.argument in inspect.signature(method).parameters, name
            assert need.sees in ("", *inspect.signature(method).parameters), name


def test_every_field_of_the_operations_can_be_seen_or_is_private() -> None:
    """Operations that are held as a field are checked too."""
    sim = SimManager().start()
    seen = authorized(sim.operations, ALL_ALLOWED.rights_of("p"))
    for name in vars(sim.operations):
        if not name.startswith("_"):
            getattr(seen, name)
        else:
            with pytest.raises(AssertionError, match="no rule of access"):
                getattr(seen, name)


def test_what_is_not_declared_is_refused() -> None:
    @operation_class()
    class Forgetful:
        def __init__(self) -> None:
            self.field = 1

        def method(self) -> int:
            return 1

        @property
        def value(self) -> int:
            return 1

        @open_to_all
        def shown(self) -> int:
            return 1

    seen = authorized(Forgetful(), ALL_ALLOWED.rights_of("p"))
    assert seen.shown() == 1
    for name in ("method", "value", "field"):
        with pytest.raises(AssertionError, match=f"Forgetful.{name} has no rule"):
            getattr(seen, name)
    with pytest.raises(AttributeError):
        seen.missing  # type: ignore[attr-defined]  # noqa: B018 - the look-up is the test


def test_the_acts_of_a_reader_and_of_a_writer() -> None:
    """Each act needs its own right, and the right to read or write lets describe."""
    sim = SimManager().start()
    sim.operations.topics.create("t")
    log = sim.operations.partition_log("t", 0)
    reader, writer = view(sim, "allow p read topic t"), view(sim, "allow p write topic t*")
    for seen in (reader, writer):
        assert seen.partition_log("t", 0) is log
        assert seen.partition_count(topic="t") == 1
        with pytest.raises(TopicAccessDenied, match="create topic new"):
            seen.topics.create("new")
        with pytest.raises(TopicAccessDenied, match="delete topic t"):
            seen.submit_delete_records("t", 0, 0, None)
        with pytest.raises(ClusterAccessDenied):
            seen.log_dirs.describe()
        with pytest.raises(ClusterAccessDenied):
            seen.alter_broker_configs([])
    with pytest.raises(TopicAccessDenied, match="write topic t"):
        reader.submit_produce(log, records_of(batch_of("x"), log), Acks.LEADER)
    with pytest.raises(TopicAccessDenied, match="read topic t"):
        writer.fetch(log, 0, 100, Isolation.HIGH_WATERMARK, may_block=True)
    writer.submit_produce(log, records_of(batch_of("x"), log), Acks.LEADER)


def test_unknown_and_forbidden_topics_answer_alike() -> None:
    sim = SimManager().start()
    sim.operations.topics.create("here")
    stranger, guest = view(sim, ""), view(sim, "allow p describe topic *")
    refusals = []
    for name in ("here", "gone"):
        with pytest.raises(TopicAccessDenied) as refused:
            stranger.partition_log(name, 0)
        refusals.append(refused.value.message.replace(name, "NAME"))
    assert refusals[0] == refusals[1]
    assert stranger.topic_names() == []
    assert guest.topic_names() == ["here"]
    with pytest.raises(UnknownTopic):
        guest.partition_log("gone", 0)


@pytest.mark.parametrize(
    ("right", "seen", "seen_later"),
    [
        ("describe topic mine-*", ["mine-1", "mine-2"], ["mine-1", "mine-2", "mine-3"]),
        ("read topic *", ["mine-1", "mine-2", "theirs"], ["mine-1", "mine-2", "mine-3", "theirs"]),
    ],
)
def test_a_pattern_matches_what_its_subscriber_may_describe(
    right: str, seen: list[str], seen_later: list[str]
) -> None:
    sim = SimManager().start()
    for name in ("mine-1", "mine-2", "theirs"):
        sim.operations.topics.create(name)
    members = view(sim, f"allow p read group g\nallow p {right}").groups.members
    consumer = members.create("g", None, ConsumerConfig())
    members.subscribe(consumer, None, ".*")
    assert consumer.topics == seen
    sim.operations.topics.create("mine-3")
    assert members.find("g", consumer.name).topics == seen_later


SALT = bytes(range(16))
SOUND = "scrypt:16:8:1:AAAAAAAAAAAAAAAA:AAAAAAAAAAAAAAAAAAAAAAAA"


def test_scrypt_of_rfc_7914() -> None:
    digest = bytes.fromhex(
        "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162"
        "2eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640"
    )
    kept = PasswordHash(1024, 8, 16, b"NaCl", digest)
    assert kept.matches(b"password")
    assert not kept.matches(b"passwore")


def test_made_lines_are_read_back() -> None:
    password = PasswordHash.of("pässword".encode(), SALT)
    text = f"# people\n{basic_line('jane doe', password)}\n\n{bearer_line('ci', b'tok')} # build\n"
    read = decode_credentials(text)
    assert read.passwords["jane doe"].matches("pässword".encode())
    assert not read.passwords["jane doe"].matches(b"password")
    assert read.tokens == {token_digest(b"tok"): "ci"}
    assert not NO_PASSWORD.matches(b"")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("basic alice", "a credential is"),
        ("digest alice x", "a credential is"),
        ("basic alice hunter2secret", "a basic secret is"),
        (f"basic alice {SOUND.replace(':16:', ':17:')}", "a power of two"),
        (f"basic alice {SOUND.replace(':8:', ':0:')}", "positive"),
        (f"basic alice {SOUND.replace(':16:8', ':4194304:8')}", "256 MiB"),
        (f"basic alice {SOUND.replace('AAAA:', 'A!AA:')}", "base64"),
        ("basic alice scrypt:16:8:1:AAAA:AAAA", "too short"),
        (f"basic a:b {SOUND}", "no ':'"),
        (f"basic a* {SOUND}", "no '\\*'"),
        (f"basic ok {SOUND}\nbasic ok {SOUND}", "has a password already"),
        ("bearer ci hunter2secret", "64 hex digits"),
        (f"bearer ci sha256:{'0' * 64}\nbearer cd sha256:{'0' * 64}", "another line"),
        ("bearer 'ci", "No closing quotation"),
    ],
)
def test_a_fault_names_its_line_and_no_secret(line: str, fault: str) -> None:
    number = 2 + line.count("\n")
    with pytest.raises(FormatError, match=f"^line {number}: .*{fault}") as refused:
        decode_credentials(f"# file\n{line}")
    assert "hunter2" not in refused.value.reason


def test_representations_hold_no_secret() -> None:
    read = decode_credentials(f"basic alice {SOUND}\n{bearer_line('ci', b'tok')}")
    assert "b'" not in repr(read)


@given(st.text(max_size=120))
def test_any_text_is_credentials_or_refused(text: str) -> None:
    try:
        decode_credentials(text)
    except FormatError as error:
        assert error.reason.startswith("line ")  # noqa: PT017 - most texts are refused, not all


@pytest.mark.parametrize("name", ["", "a*", "a\nb", "a\0b", "x" * 201])
def test_names_that_are_none(name: str) -> None:
    """A principal can stand in a rule and in a log line, and is no address of a rate."""
    assert principal_fault(name)
    assert login_fault(name)


def test_only_a_login_has_no_colon() -> None:
    """URIs of certificates and names of service accounts are principals."""
    assert principal_fault("spiffe://x/y") is None
    assert login_fault("spiffe://x/y")
    assert login_fault("alice") is None


def test_tries_are_counted_by_address_and_forgotten_after_a_minute() -> None:
    tries = FailedTries(10)
    assert [tries.begin("10.0.0.1", 100.0) for _ in range(10)] == [0] * 10
    assert tries.begin("10.0.0.1", 110.0) == 50
    assert tries.begin("::ffff:10.0.0.1", 110.0) == 50
    assert tries.begin("10.0.0.2", 110.0) == 0
    assert tries.begin("10.0.0.1", 160.0) == 0
    for host in range(10):
        assert tries.begin(f"2001:db8::{host:x}", 100.0) == 0
    assert tries.begin("2001:db8::ffff", 100.0) == 60
    assert tries.begin("2001:db8:0:1::", 100.0) == 0
    assert tries.begin("", 100.0) == 0


def test_a_try_that_succeeds_is_none() -> None:
    tries = FailedTries(10)
    for number in range(100):
        assert tries.begin("a", 0.0) == 0
        if number % 12:
            tries.succeeded("a")
    assert tries.begin("a", 0.0) == 0
    assert tries.begin("a", 0.0) == 60


def test_remembered_addresses_are_bounded() -> None:
    tries = FailedTries(1)
    for number in range(5000):
        assert tries.begin(f"host-{number}", 0.0) == 0
    assert tries.begin("host-4999", 0.0) == 60
    assert tries.begin("host-0", 0.0) == 0


PASSWORDS = {"alice": PasswordHash.of(b"right", bytes(16))}
CREDENTIALS = Credentials(PASSWORDS, {token_digest(b"static"): "robot"})
ALICE = "Basic " + base64.b64encode(b"alice:right").decode()


class CountingKeys:
    """A verifier that takes one token, until a moment."""

    def __init__(self, until_seconds: float = 100.0) -> None:
        self.calls = 0
        self.until_seconds = until_seconds

    def verify(self, token: str, now_seconds: float) -> Verified:
        self.calls += 1
        if token != "good":
            raise RefusedToken("it has expired")
        verified = Verified("federated", self.until_seconds)
        if now_seconds >= self.until_seconds:
            raise ExpiredToken(verified)
        return verified


class World:
    """Authenticators with what they know, and a wall clock."""

    def __init__(self, *schemes: str, keys: CountingKeys | None = None) -> None:
        self.known = Known(CREDENTIALS, keys)
        self.now = 0.0
        self.authenticators = Authenticators(
            schemes, lambda: self.known, FailedTries(5), _matches, wall_seconds=lambda: self.now
        )

    def ask(self, header: str) -> str:
        request = make_mocked_request("GET", "/", {"Authorization": header})
        return asyncio.run(self.authenticators.principal_of(request, 0.0))

    def refused(self, header: str) -> ApiError:
        with pytest.raises(ApiError) as caught:
            self.ask(header)
        return caught.value


def _matches(kept: PasswordHash, password: bytes) -> Awaitable[bool]:
    async def answer() -> bool:
        return kept.matches(password)

    return answer()


def test_a_token_is_remembered_until_it_expires() -> None:
    keys = CountingKeys()
    world = World("jwt", keys=keys)
    for now in (0.0, 50.0, 99.0):
        world.now = now
        assert world.ask("Bearer good") == "federated"
    assert keys.calls == 1
    world.now = 100.0
    assert world.refused("Bearer good").entry.error_code == 40101


def test_other_keys_forget_what_was_verified() -> None:
    world = World("basic", "jwt", keys=CountingKeys())
    assert world.ask("Bearer good") == "federated"
    assert world.ask(ALICE) == "alice"
    world.known = Known(CREDENTIALS, CountingKeys(until_seconds=0.0))
    world.refused("Bearer good")
    assert world.ask(ALICE) == "alice"


def test_static_tokens_come_before_jwts() -> None:
    keys = CountingKeys()
    both = World("bearer", "jwt", keys=keys)
    assert (both.ask("Bearer static"), keys.calls) == ("robot", 0)
    assert both.ask("Bearer good") == "federated"
    World("jwt", keys=keys).refused("Bearer static")
    World("bearer").refused("Bearer good")


@pytest.mark.parametrize("word", ["mtls", "jwt", "none", "bearer"])
def test_a_password_comes_in_by_basic_alone(word: str) -> None:
    world = World("bearer", "mtls", "jwt", keys=CountingKeys())
    world.refused(f"{word} {ALICE.partition(' ')[2]}")
    world.refused(ALICE)


def test_what_a_refusal_offers() -> None:
    """RFC 6750's error for a token that was sent, the bare challenges else, each once."""
    world = World("basic", "bearer", "jwt", keys=CountingKeys())
    bare = 'Basic realm="kafkalog", charset="UTF-8", Bearer realm="kafkalog"'
    assert world.refused("Basic AAAA").headers["WWW-Authenticate"] == bare
    said = world.refused("Bearer bad").headers["WWW-Authenticate"]
    assert said == f'{bare}, error="invalid_token", error_description="it has expired"'


@pytest.mark.parametrize("was_used", [True, False])
def test_an_expired_token_is_no_guess(was_used: bool) -> None:
    keys = CountingKeys()
    world = World("jwt", keys=keys)
    if was_used:
        world.ask("Bearer good")
    world.now = 100.0
    for spaces in range(1, 20):
        refusal = world.refused(f"Bearer{' ' * spaces}good")
        assert refusal.entry.error_code == 40101
        assert "it has expired" in refusal.message
    assert keys.calls == 1
    for number in range(5):
        assert world.refused(f"Bearer {number}").entry.error_code == 40101
    assert world.refused("Bearer 5").entry.error_code == 42901
    assert world.refused("Bearer good").entry.error_code == 40101


def test_a_second_s_worth_at_once_then_the_rate() -> None:
    buckets = TokenBuckets(5)

    def take(now_seconds: float) -> int:
        wait = buckets.wait_seconds("a", now_seconds)
        if not wait:
            buckets.spend("a", 1, now_seconds)
        return wait

    assert [take(100.0) for _ in range(7)] == [0] * 5 + [1] * 2
    assert [take(100.375) for _ in range(4)] == [0, 0, 1, 1]
    assert [take(500.0) for _ in range(7)] == [0] * 5 + [1] * 2
    assert buckets.wait_seconds("b", 500.0) == 0


def test_debt_is_waited_for() -> None:
    buckets = TokenBuckets(1000)
    buckets.spend("a", 10_000, 0.0)
    assert buckets.wait_seconds("a", 0.0) == 9
    assert buckets.wait_seconds("a", 8.5) == 1
    assert buckets.wait_seconds("a", 9.1) == 0


@given(
    st.integers(1, 100), st.lists(st.tuples(st.floats(0, 2), st.sampled_from("ab")), max_size=200)
)
def test_the_rate_holds_over_any_time(rate: int, steps: list[tuple[float, str]]) -> None:
    buckets, now, taken = TokenBuckets(rate), 0.0, {"a": 0, "b": 0}
    for pause, name in steps:
        now += pause
        if not buckets.wait_seconds(name, now):
            buckets.spend(name, 1, now)
            taken[name] += 1
        assert taken[name] <= rate * (now + 1) + 1


def test_remembered_names_are_bounded() -> None:
    buckets = TokenBuckets(1)
    buckets.spend("used", 5000, 0.0)
    for number in range(10_000):
        buckets.spend(f"\0{number}", 2, 0.0)
        buckets.spend("used", 1, 0.0)
    assert buckets.wait_seconds("used", 0.0) > 1000
    assert buckets.wait_seconds("\0" + "0", 0.0) == 0
    assert buckets.wait_seconds("\0" + "9999", 0.0) == 1


def test_a_look_at_the_files_says_what_became_of_each(tmp_path: Path) -> None:
    """Read, refused until it is put right, unchanged."""
    rules = tmp_path / "rules"
    rules.write_text("allow admin all cluster\n")
    told: list[tuple[str, bool]] = []

    def look() -> str:
        return files.refresh(lambda key, is_taken: told.append((key, is_taken)))["http.acl.file"]

    server = load_settings(None, {}, {"http.port": "0"}).server
    files = AccessFiles(dataclasses.replace(server, http_acl_file=str(rules)))
    assert look() == "unchanged"
    rules.write_text("allow admin everything\n")
    assert [look(), look()] == ["refused", "refused"]
    rules.write_text("allow admin read cluster\n")
    assert [look(), look()] == ["read", "unchanged"]
    assert told == [("http.acl.file", False), ("http.acl.file", True)]
