"""JSON Web Tokens: the principal of a signed token, verified by a local key set (JWKS).

Nothing is fetched, and nothing in a token chooses how it is verified: the type of a key says which
algorithms it may verify, the configuration which are allowed. So there is no ``none`` and no HMAC,
and a public key is never used as a secret. A key set with a private or secret key is refused: the
file is readable by everybody. PyJWT verifies signatures; claims are checked here, with the caller's
clock. The reason of a refusal never repeats the token. Imported only where ``http.auth`` names jwt.
Any thread. Sources: RFC 7515, 7517, 7519, 8725 (best practices); Kafka's BrokerJwtValidator.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWS
from jwt.exceptions import PyJWTError

from kafkalog.format.disk.credentials import principal_fault
from kafkalog.format.integers import FormatError
from kafkalog.server.security.authenticators import ExpiredToken, RefusedToken, Verified

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.settings import ServerConfig

# By type and curve of a key: what it may check.
_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512"),
    "EC P-256": ("ES256",),
    "EC P-384": ("ES384",),
    "OKP Ed25519": ("EdDSA",),
}
_RSA_BITS_MIN, _RSA_BITS_MAX = 2048, 8192  # a check of 8192 bits takes 0.3 ms of the event loop
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
# Other types are tokens for something else (RFC 8725, 3.11).
_TYPES = (None, "jwt", "at+jwt", "application/jwt", "application/at+jwt")
_SECONDS_MAX = 253_402_300_799  # the end of the year 9999

_JWS = PyJWS()


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must claim, and how it may be signed."""

    issuer: str
    audiences: frozenset[str]
    principal_claim: str
    algorithms: frozenset[str]
    clock_skew_seconds: float

    @classmethod
    def of(cls, config: ServerConfig) -> TokenRules:
        """Those of a configuration that was checked."""
        assert config.http_jwt_issuer is not None
        return cls(
            config.http_jwt_issuer,
            frozenset(config.http_jwt_audience),
            config.http_jwt_principal_claim,
            frozenset(config.http_jwt_algorithms),
            config.http_jwt_clock_skew_ms / 1000,
        )


@dataclass(frozen=True, slots=True, eq=False)
class TokenKeys:
    """The keys of a file by (kid or None, algorithm), and the rules in force with them."""

    keys: Mapping[tuple[str | None, str], PyJWK]
    rules: TokenRules

    def verify(self, token: str, now_seconds: float) -> Verified:
        """Who the token names, and until when (wall clock, s); RefusedToken says why not.

        ExpiredToken when only its expiry is wrong: the signature and all other claims are right.
        """
        if not _COMPACT.fullmatch(token):
            raise RefusedToken("it is no signed JWT")
        try:
            header = _JWS.get_unverified_header(token)
            key = self._key_for(header)
            payload = _JWS.decode(token, key, algorithms=[key.algorithm_name])
        except PyJWTError:
            raise RefusedToken("it is malformed, or its signature is wrong") from None
        return self._check_claims(_object(payload), now_seconds)

    def _key_for(self, header: Mapping[str, Any]) -> PyJWK:
        """The one key that the header names; without a name the one that fits."""
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
        if not isinstance(algorithm, str) or algorithm not in self.rules.algorithms:
            raise RefusedToken("its algorithm is not allowed")
        if "crit" in header or (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
            raise RefusedToken("it is of a kind that is not understood")
        if kid is None:
            fitting = [key for (_, name), key in self.keys.items() if name == algorithm]
            if len(fitting) == 1:
                return fitting[0]
        key = self.keys.get((kid, algorithm)) if isinstance(kid, str) else None
        if key is None:
            raise RefusedToken("no key fits it")
        return key

    def _check_claims(self, claims: Mapping[str, Any], now_seconds: float) -> Verified:
        rules, skew_seconds = self.rules, self.rules.clock_skew_seconds
        expires = _moment(claims, "exp")
        begins = _moment(claims, "nbf") if "nbf" in claims else 0.0
        if now_seconds < begins - skew_seconds:
            raise RefusedToken("it is not valid yet")
        if claims.get("iss") != rules.issuer:
            raise RefusedToken("it is of another issuer")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(each, str) and each in rules.audiences for each in audiences):
            raise RefusedToken("it is for another audience")
        principal = claims.get(rules.principal_claim)
        if not isinstance(principal, str) or principal_fault(principal) is not None:
            raise RefusedToken("it names no principal that a rule could hold")
        verified = Verified(principal, expires + skew_seconds)
        if now_seconds >= verified.until_seconds:
            raise ExpiredToken(verified)
        return verified


def _object(payload: bytes) -> Mapping[str, Any]:
    """The claims; RefusedToken for anything but a JSON object."""
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise RefusedToken("its claims are no JSON object")
    return claims


def _moment(claims: Mapping[str, Any], name: str) -> float:
    """Seconds since 1970; RefusedToken for what is none, NaN and infinity among it."""
    value = claims.get(name)
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= _SECONDS_MAX
    ):
        return float(value)
    raise RefusedToken(f"its {name} is missing or no number of seconds")


def decode_jwks(text: str, rules: TokenRules) -> TokenKeys:
    """The public signature keys of a JSON Web Key Set; FormatError says what is wrong.

    Keys for other purposes and of other types are passed over, as RFC 7517 wants it.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError("is no JSON") from error
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise FormatError('a key set is {"keys": [{...}, ...]}')
    found = [pair for number, each in enumerate(entries) for pair in _keys_of(number, each)]
    repeated = [name for name, count in Counter(name for name, _ in found).items() if count > 1]
    if repeated:
        raise FormatError(f"two keys for {repeated[0][1]} have the same kid, or none")
    keys = dict(found)
    if not any(algorithm in rules.algorithms for _, algorithm in keys):
        raise FormatError("holds no public key for an algorithm of http.jwt.algorithms")
    return TokenKeys(keys, rules)


def _keys_of(number: int, entry: dict[str, Any]) -> list[tuple[tuple[str | None, str], PyJWK]]:
    """A key once for each algorithm that it may check."""
    if entry.get("kty") == "oct" or "d" in entry:
        raise FormatError(f"key {number} is a secret one: leave public keys only")
    kid, use, operations = entry.get("kid"), entry.get("use"), entry.get("key_ops")
    if kid is not None and not isinstance(kid, str):
        raise FormatError(f"key {number} has a kid that is no text")
    may_verify = operations is None or (isinstance(operations, list) and "verify" in operations)
    is_for_signatures = use in (None, "sig") and may_verify
    kind = "RSA" if entry.get("kty") == "RSA" else f"{entry.get('kty')} {entry.get('crv')}"
    algorithms = _ALGORITHMS.get(kind, ()) if is_for_signatures else ()
    made = []
    for algorithm in algorithms:
        if entry.get("alg") not in (None, algorithm):
            continue
        try:
            key = PyJWK.from_dict(entry, algorithm)
        except PyJWTError as error:
            raise FormatError(f"key {number} is no {algorithm} key") from error
        if isinstance(key.key, RSAPublicKey):
            bits = key.key.key_size
            if not _RSA_BITS_MIN <= bits <= _RSA_BITS_MAX:
                raise FormatError(
                    f"key {number} has {bits} bits; RSA keys have {_RSA_BITS_MIN} to "
                    f"{_RSA_BITS_MAX}"
                )
        made.append(((kid, algorithm), key))
    return made
