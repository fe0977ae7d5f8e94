"""Goal: the API's description says what the handlers do, and is whole.
Method: the document over all route tables, walked as a client's generator would.
"""

from __future__ import annotations

import json

from aiohttp import web
from openapi_spec_validator import validate

from kafkalog import __version__
from kafkalog.server.app import ROUTE_TABLES
from kafkalog.server.protocol.endpoint import endpoint_of
from kafkalog.server.protocol.errors import REGISTER
from kafkalog.server.protocol.openapi import describe, described_path, error_numbers

DOCUMENT = json.loads(json.dumps(describe(ROUTE_TABLES, version=__version__)))


def test_the_document_is_valid() -> None:
    """Tools that check before they read take it.

    The validator of the OpenAPI project's own schema for 3.1.
    """
    validate(DOCUMENT)


def test_what_is_made_leads_to_what_can_be_asked_of_it() -> None:
    """A tool that walks links finds operations that exist, with parameters that they have.

    Every link of the document.
    """
    operations = {
        each["operationId"]: {parameter["name"] for parameter in each["parameters"]}
        for item in DOCUMENT["paths"].values()
        for each in item.values()
    }
    links = [
        link
        for item in DOCUMENT["paths"].values()
        for each in item.values()
        for response in each["responses"].values()
        for link in response.get("links", {}).values()
    ]
    assert len(links) >= 10
    for link in links:
        assert link["parameters"].keys() <= operations[link["operationId"]]


def test_references_lead_to_components() -> None:
    """No reader of the document meets a name that it does not define.

    Every ``$ref`` of the document.
    """
    components = DOCUMENT["components"]["schemas"]
    found = set()

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                found.add(value["$ref"])
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(DOCUMENT)
    assert found
    assert {name.removeprefix("#/components/schemas/") for name in found} <= components.keys()


def test_operation_ids_stand_once() -> None:
    """A generated client has one function an operation.

    All operation ids; aliases of a path carry the path in theirs.
    """
    ids = [each["operationId"] for item in DOCUMENT["paths"].values() for each in item.values()]
    assert len(ids) == len(set(ids))
    assert "fetchBatches" in ids


def test_every_error_number_has_its_status() -> None:
    """A client knows every answer it may get.

    For each promised route each of its numbers; its status is declared and names it.
    """
    for table in ROUTE_TABLES:
        for route in table:
            assert isinstance(route, web.RouteDef)
            promise = endpoint_of(route.handler)
            if promise is None:
                continue
            operation = DOCUMENT["paths"][described_path(route.path)][route.method.lower()]
            responses = operation["responses"]
            for number in error_numbers(route.path, promise):
                status = str(REGISTER[number].status)
                assert f"{number}: " in responses[status]["description"], (route.path, number)
            assert promise.summary, route.path


def test_parameters_say_what_they_take() -> None:
    """Bounds and defaults of the description are those of the handler.

    The raw fetch, whose parameters read themselves.
    """
    operation = DOCUMENT["paths"]["/v1/topics/{topic}/partitions/{partition}/batches"]["get"]
    by_name = {each["name"]: each for each in operation["parameters"]}
    assert by_name["offset"]["required"]
    assert by_name["offset"]["schema"]["minimum"] == 0
    assert by_name["max_bytes"]["schema"]["default"] == 1 << 20
    assert by_name["topic"]["in"] == "path"
    assert by_name["isolation"]["schema"]["enum"] == ["read_uncommitted", "read_committed"]
