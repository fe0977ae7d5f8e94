"""An identity provider for tests: keys, their public set as a file, tokens of any kind."""

from __future__ import annotations

import base64
import functools
import json
import time
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import PyJWS
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.integration.access_world import write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ISSUER, AUDIENCE = "https://issuer.example/", "kafkalog"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@functools.cache
def private_key(kid: str) -> PrivateKey:
    """One key for a name, which says of what type; drawn once a process: RSA keys take long."""
    if kid.startswith("p256"):
        return ec.generate_private_key(ec.SECP256R1())
    if kid.startswith("p384"):
        return ec.generate_private_key(ec.SECP384R1())
    if kid.startswith("ed"):
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 1024 if kid.startswith("short") else 2048)


def public_jwk(kid: str, /, **changes: object) -> dict[str, Any]:
    """The entry of a key; a change to None leaves the member out."""
    key = private_key(kid).public_key()
    if isinstance(key, rsa.RSAPublicKey):
        entry = RSAAlgorithm.to_jwk(key, as_dict=True)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        entry = ECAlgorithm.to_jwk(key, as_dict=True)
    else:
        entry = OKPAlgorithm.to_jwk(key, as_dict=True)
    entry.pop("key_ops", None)
    entry = {**entry, "kid": kid, "use": "sig", **changes}
    return {name: value for name, value in entry.items() if value is not None}


def key_set(*kids: str) -> str:
    return json.dumps({"keys": [public_jwk(kid) for kid in kids]})


def claims_of(principal: str, **changes: object) -> dict[str, object]:
    """Good ones for an hour; a change to None leaves the claim out."""
    now = int(time.time())
    claims: dict[str, object] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": principal,
        "iat": now,
        "nbf": now,
        "exp": now + 3600,
        **changes,
    }
    return {name: value for name, value in claims.items() if value is not None}


def token(
    claims: Mapping[str, object],
    kid: str = "rsa-1",
    algorithm: str = "RS256",
    headers: Mapping[str, object] | None = None,
) -> str:
    """A signed token; ``headers`` go over its kid, None leaves one out."""
    named = {"kid": kid, **(headers or {})}
    given = {name: value for name, value in named.items() if value is not None}
    return PyJWS().encode(json.dumps(dict(claims)).encode(), private_key(kid), algorithm, given)


def by_token(principal: str, **changes: object) -> dict[str, str]:
    """The header of somebody with a good token but for the changes of its claims."""
    return {"Authorization": f"Bearer {token(claims_of(principal, **changes))}"}


def unsigned(
    header: Mapping[str, object], claims: Mapping[str, object], signature: str = ""
) -> str:
    def part(value: Mapping[str, object]) -> str:
        text = json.dumps(value).encode()
        return base64.urlsafe_b64encode(text).decode().rstrip("=")

    return f"{part(header)}.{part(claims)}.{signature}"


def jwt_settings(root: Path, *kids: str) -> dict[str, Any]:
    """A file of keys below root, and the overrides (underscores for dots) that name it."""
    path = write(root / "jwks.json", key_set(*(kids or ("rsa-1",))), 0o644)
    return {
        "http_jwt_jwks_file": str(path),
        "http_jwt_issuer": ISSUER,
        "http_jwt_audience": f"{AUDIENCE},other",
    }
