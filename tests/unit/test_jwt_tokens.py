"""Goal: only a token of the issuer, for us, of this time, signed with its keys, names anybody.
Method: each refusal by a token that is good but for it, at a clock of our own; hostile key sets.
"""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given, strategies as st
from jwt import PyJWS

from kafkalog.format.integers import FormatError
from kafkalog.server.security.authenticators import RefusedToken, Verified
from kafkalog.server.security.jwt import TokenKeys, TokenRules, decode_jwks
from kafkalog.settings import ServerConfig
from tests.integration.jwt_world import (
    AUDIENCE,
    ISSUER,
    claims_of,
    key_set,
    private_key,
    public_jwk,
    token,
    unsigned,
)

NOW = 1_700_000_000
SKEW = 30


def rules(**config: Any) -> TokenRules:
    audience = AUDIENCE, "other"
    return TokenRules.of(ServerConfig(http_jwt_issuer=ISSUER, http_jwt_audience=audience, **config))


RULES = rules()
KIDS = ("rsa-1", "rsa-2", "p256-1", "p384-1", "ed-1")


def keys(*kids: str) -> TokenKeys:
    return decode_jwks(key_set(*(kids or KIDS)), RULES)


def claims(**changes: object) -> dict[str, object]:
    return claims_of("alice", **{"iat": NOW, "nbf": NOW, "exp": NOW + 60, **changes})


def verify(text: str, now: float = NOW, by: TokenKeys | None = None) -> Verified:
    return (by or keys()).verify(text, now)


def refused(text: str, reason: str, now: float = NOW, by: TokenKeys | None = None) -> None:
    with pytest.raises(RefusedToken, match=reason) as caught:
        verify(text, now, by)
    assert "alice" not in caught.value.reason


@pytest.mark.parametrize(
    ("kid", "algorithm"),
    [
        ("rsa-1", "RS256"),
        ("rsa-2", "RS384"),
        ("rsa-1", "RS512"),
        ("p256-1", "ES256"),
        ("p384-1", "ES384"),
        ("ed-1", "EdDSA"),
    ],
)
def test_good_tokens(kid: str, algorithm: str) -> None:
    text = token(claims(), kid, algorithm)
    assert verify(text) == Verified("alice", NOW + 60 + SKEW)
    assert verify(text, NOW + 60 + SKEW - 1).principal == "alice"
    assert verify(text, NOW - SKEW).principal == "alice"
    refused(text, "it has expired", NOW + 60 + SKEW)
    refused(text, "it is not valid yet", NOW - SKEW - 1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": None}, "its exp is missing or no number of seconds"),
        ({"exp": "2030"}, "its exp is missing or no number of seconds"),
        ({"exp": True}, "its exp is missing or no number of seconds"),
        ({"exp": float("inf")}, "its exp is missing or no number of seconds"),
        ({"exp": float("nan")}, "its exp is missing or no number of seconds"),
        ({"exp": 10**400}, "its exp is missing or no number of seconds"),
        ({"exp": -1}, "its exp is missing or no number of seconds"),
        ({"nbf": "x"}, "its nbf is missing or no number of seconds"),
        ({"nbf": NOW + SKEW + 1, "exp": NOW + 99}, "it is not valid yet"),
        ({"exp": NOW - SKEW}, "it has expired"),
        ({"iss": None}, "it is of another issuer"),
        ({"iss": ISSUER[:-1]}, "it is of another issuer"),
        ({"iss": [ISSUER]}, "it is of another issuer"),
        ({"aud": None}, "it is for another audience"),
        ({"aud": "kafkalog2"}, "it is for another audience"),
        ({"aud": "kafka"}, "it is for another audience"),
        ({"aud": []}, "it is for another audience"),
        ({"aud": [["kafkalog"], {"kafkalog": 1}, 7]}, "it is for another audience"),
        ({"aud": {"kafkalog": 1}}, "it is for another audience"),
        ({"sub": None}, "it names no principal"),
        ({"sub": ""}, "it names no principal"),
        ({"sub": "*"}, "it names no principal"),
        ({"sub": "a\nb"}, "it names no principal"),
        ({"sub": "x" * 201}, "it names no principal"),
        ({"sub": 7}, "it names no principal"),
    ],
)
def test_claims_that_are_refused(changes: dict[str, object], reason: str) -> None:
    refused(token(claims(**changes)), reason)


def test_claims_that_are_taken() -> None:
    assert verify(token(claims(aud=["x", "other"], nbf=None))).principal == "alice"
    account = "system:serviceaccount:ns:name"
    assert verify(token(claims(sub=account))).principal == account
    claim = rules(http_jwt_principal_claim="client_id", http_jwt_clock_skew_ms=0)
    own = decode_jwks(key_set("rsa-1"), claim)
    assert verify(token(claims(client_id="bob")), by=own) == Verified("bob", NOW + 60)
    refused(token(claims()), "it names no principal", by=own)


def signed_by_public_key(algorithm: str, secret: bytes, kid: str = "rsa-1") -> str:
    """The key confusion attack: HMAC with what everybody knows."""
    text = unsigned({"alg": algorithm, "kid": kid, "typ": "JWT"}, claims()).rstrip(".")
    digest = hmac.digest(secret, text.encode(), "sha256")
    return f"{text}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def test_nothing_in_a_token_chooses_how_it_is_checked() -> None:
    for name in ("none", "None", "NONE", "nOnE", ""):
        for signature in ("", "AA"):
            with pytest.raises(RefusedToken):
                verify(unsigned({"alg": name, "kid": "rsa-1"}, claims(), signature))
    public = private_key("rsa-1").public_key()
    whole = serialization.PublicFormat.SubjectPublicKeyInfo
    encodings = serialization.Encoding.PEM, serialization.Encoding.DER
    forms = [public.public_bytes(encoding, whole) for encoding in encodings]
    for secret in (*forms, json.dumps(public_jwk("rsa-1")).encode()):
        refused(signed_by_public_key("HS256", secret), "its algorithm is not allowed")
        refused(signed_by_public_key("RS256", secret), "its signature is wrong")
    refused(token(claims(), "rsa-1", "PS256"), "its algorithm is not allowed")
    refused(token(claims(), "p256-1", headers={"kid": "rsa-1"}, algorithm="ES256"), "no key fits")
    mine = public_jwk("rsa-evil")
    refused(
        token(claims(), "rsa-evil", headers={"kid": "rsa-1", "jwk": mine}), "signature is wrong"
    )
    for kid in ("rsa-evil", "../rsa-1", "rsa-1\0", "", "x" * 3000):
        refused(token(claims(), "rsa-evil", headers={"kid": kid}), "no key fits it")
    for odd in (7, ["rsa-1"], {"a": 1}):
        with pytest.raises(RefusedToken):
            verify(unsigned({"alg": "RS256", "kid": odd}, claims(), "AA"))


def test_algorithms_that_are_not_allowed_here() -> None:
    only_one = rules(http_jwt_algorithms=("ES256",))
    narrow = decode_jwks(key_set(*KIDS), only_one)
    refused(token(claims()), "its algorithm is not allowed", by=narrow)
    assert verify(token(claims(), "p256-1", "ES256"), by=narrow).principal == "alice"
    with pytest.raises(FormatError, match=r"http\.jwt\.algorithms"):
        decode_jwks(key_set("rsa-1"), only_one)


def test_a_key_that_says_its_algorithm_checks_no_other() -> None:
    """RFC 7517, 4.4."""
    only = decode_jwks(json.dumps({"keys": [public_jwk("rsa-1", alg="RS512")]}), RULES)
    assert verify(token(claims(), algorithm="RS512"), by=only).principal == "alice"
    refused(token(claims()), "no key fits it", by=only)


def test_a_token_without_kid_needs_a_single_key() -> None:
    without = {"kid": None}
    text = token(claims(), headers=without)
    assert verify(text, by=keys("rsa-1", "p256-1")).principal == "alice"
    refused(text, "no key fits it", by=keys("rsa-1", "rsa-2"))
    nameless = decode_jwks(json.dumps({"keys": [public_jwk("rsa-1", kid=None)]}), RULES)
    assert verify(text, by=nameless).principal == "alice"
    refused(token(claims()), "no key fits it", by=nameless)


@pytest.mark.parametrize(
    "headers",
    [
        {"crit": ["exp"]},
        {"crit": []},
        {"b64": False, "crit": ["b64"]},
        {"typ": "dpop+jwt"},
        {"typ": "logout+jwt"},
        {"typ": 7},
    ],
)
def test_kinds_that_are_not_understood(headers: dict[str, object]) -> None:
    good = {"alg": "RS256", "kid": "rsa-1"}
    with pytest.raises(RefusedToken):
        verify(unsigned({**good, **headers}, claims(), "AA"))
    for kind in ("at+jwt", "JWT", "application/at+JWT"):
        assert verify(token(claims(), headers={"typ": kind})).principal == "alice"


def test_a_changed_token() -> None:
    text, other = token(claims()), token(claims(sub="bob"))
    head, body, signature = text.split(".")
    _, their_body, their_signature = other.split(".")
    flipped = ("A" if signature[5] != "A" else "B").join((signature[:5], signature[6:]))
    for changed in (
        f"{head}.{their_body}.{signature}",
        f"{head}.{body}.{their_signature}",
        f"{head}.{body}.{flipped}",
        f"{text}.{signature}",
        f"{head}.{body}.",
    ):
        with pytest.raises(RefusedToken):
            verify(changed)


def test_payloads_that_are_no_claims() -> None:
    for payload in (b"", b"[]", b"7", b"null", b"\xff", b"{", b"[" * 3000, b'{"exp":1e999}'):
        signed = PyJWS().encode(payload, private_key("rsa-1"), "RS256", {"kid": "rsa-1"})
        with pytest.raises(RefusedToken):
            verify(signed)
    deep = base64.urlsafe_b64encode(b"[" * 5000).decode().rstrip("=")
    refused(f"{deep}.AAAA.AAAA", "it is malformed")


@given(st.text(alphabet="abeyJ.-_=AB01 \n\0é", max_size=200))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(RefusedToken):
        verify(text, by=keys("rsa-1"))


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ("nonsense", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "a key set is"),
        ('{"keys": 7}', "a key set is"),
        ('{"keys": [7]}', "a key set is"),
        ('{"keys": []}', "holds no public key"),
        ([{"kty": "oct", "k": "c2VjcmV0", "kid": "a"}], "key 0 is a secret one"),
        ([public_jwk("rsa-1", d="AQAB")], "key 0 is a secret one"),
        ([public_jwk("rsa-1"), public_jwk("rsa-1")], "have the same kid"),
        ([public_jwk("rsa-1", kid=None), public_jwk("rsa-2", kid=None)], "have the same kid"),
        ([public_jwk("short-1")], "key 0 has 1024 bits"),
        ([public_jwk("rsa-1", kid=7)], "key 0 has a kid that is no text"),
        ([public_jwk("rsa-1", n=None)], "key 0 is no RS256 key"),
        ([public_jwk("p256-1", x="AQAB")], "key 0 is no ES256 key"),
        ([public_jwk("rsa-1", use="enc")], "holds no public key"),
        ([public_jwk("rsa-1", key_ops=["encrypt"])], "holds no public key"),
        ([public_jwk("rsa-1", key_ops=7)], "holds no public key"),
        ([public_jwk("rsa-1", alg="PS256")], "holds no public key"),
        ([public_jwk("rsa-1", alg="HS256")], "holds no public key"),
    ],
)
def test_key_sets_that_are_refused(entries: str | list[dict[str, Any]], fault: str) -> None:
    text = entries if isinstance(entries, str) else json.dumps({"keys": entries})
    with pytest.raises(FormatError, match=fault) as caught:
        decode_jwks(text, RULES)
    assert "AQAB" not in caught.value.reason


def test_other_keys_are_passed_over() -> None:
    """Sets of providers hold keys for encryption and of types to come."""
    others = [
        {"kty": "new", "kid": "n"},
        {"kty": "EC", "crv": "secp256k1", "kid": "k"},
        {"kid": "nothing"},
        public_jwk("rsa-2", use="enc"),
    ]
    found = decode_jwks(json.dumps({"keys": [*others, public_jwk("rsa-1")]}), RULES)
    assert {kid for kid, _ in found.keys} == {"rsa-1"}
    assert verify(token(claims()), by=found).principal == "alice"


MEMBERS = st.sampled_from(["kty", "crv", "kid", "use", "alg", "n", "e", "x", "y", "key_ops"])
WORDS = ("RSA", "EC", "OKP", "P-256", "P-384", "Ed25519", "sig", "RS256", "AQAB", "AA", "", "é")
VALUES = st.sampled_from((*WORDS, public_jwk("rsa-1")["n"], 7, None, [], ["verify"], {}))


@given(st.lists(st.dictionaries(MEMBERS, VALUES), max_size=3))
def test_any_key_set_is_taken_or_refused(entries: list[dict[str, object]]) -> None:
    try:
        decode_jwks(json.dumps({"keys": entries}), RULES)
    except FormatError as error:
        assert error.reason  # noqa: PT017 - most are refused, not all
