"""Goal: the daemon describes its API to whoever asks.
Method: the document of a running daemon against its own answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon


@pytest.mark.parametrize("path", ["/openapi.json", "/openapi", "/openapi/v3"])
def test_the_document_is_served(daemon: Daemon, path: str) -> None:
    """One document under the names that tools look for."""
    answer = daemon.request("GET", path)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json["openapi"] == "3.1.0"
    assert path in answer.json["paths"]


def test_yaml_is_the_same_document(daemon: Daemon) -> None:
    """For tools that ask for YAML.

    A reader of YAML, not of JSON, reads it.
    """
    answer = daemon.request("GET", "/openapi.yaml")
    assert answer.headers["Content-Type"] == "application/yaml"
    document = daemon.request("GET", "/openapi.json").json
    assert YAML(typ="safe").load(answer.body) == document


def test_an_answer_has_the_fields_that_are_declared(daemon: Daemon) -> None:
    """The readiness probe, required fields and none besides."""
    schemas = daemon.request("GET", "/openapi.json").json["components"]["schemas"]
    body = daemon.request("GET", "/readyz").json
    declared = schemas["Readiness"]
    assert set(declared["required"]) <= body.keys() <= declared["properties"].keys()
