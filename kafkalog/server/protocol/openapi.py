"""``GET /openapi.json``: the API's description (OpenAPI 3.1), made of the endpoint specs.

Pure: routes in, a document out. Every status that a route can answer is declared; those that follow
from its path, parameters and body are added here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.server.protocol.endpoint import (
    CONSOLE_PREFIX,
    DEBUG_PREFIX,
    NATIVE_PREFIX,
    Access,
    endpoint_of,
)
from kafkalog.server.protocol.errors import REGISTER
from kafkalog.server.protocol.json_schema import REFERENCE, Components, NamedType
from kafkalog.server.protocol.media_types import JSON, V2_JSON
from kafkalog.server.protocol.parameters import TOPIC_NAME_SCHEMA, TopicsParameter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalog.server.protocol.endpoint import Endpoint, Model, Routes

_STRICT_PREFIXES = (NATIVE_PREFIX, DEBUG_PREFIX, CONSOLE_PREFIX)  # they take no others
_IN_PATH = re.compile(r"\{([a-z_]+)(?::[^}]*)?\}")

# Checked before any route; an unknown path has its own 404.
_ALWAYS = (40000, 408, 414, 417, 421, 431, 505, 42902, 50000, 50304)
_WITH_BODY = (400, 40006, 408, 41302, 415, 41502, 42206)
_WITH_MODEL = (422,)
_WITH_QUERY = (40005,)
_BY_PATH_PARAMETER = {
    "topic": (40002, 40401),
    "group": (40002,),
    "sink": (40002,),
    # A partition that is not served answers with its own error.
    "partition": (404, 40402, 50010, 50101, 50302, 50303, 50701),
    "broker": (404,),
    "config": (404,),
    "producer_id": (404,),
}
# v3 has one number for every part of a path that does not exist.
_V3 = "/v3/"
_BY_V3_PATH_PARAMETER = {
    **_BY_PATH_PARAMETER,
    "cluster_id": (40403,),
    "topic": (40002, 40403),
    "partition": (404, 40403, 50010, 50101, 50302, 50303, 50701),
}

# Of a group or a consumer: any text without control characters.
_NAME_SCHEMA = {
    "type": "string",
    "minLength": 1,
    "pattern": r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+$",
}
_INT32 = {"type": "integer", "format": "int32", "minimum": 0, "maximum": INT32_MAX}
PATH_PARAMETERS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "topic": ("Name of a topic.", TOPIC_NAME_SCHEMA),
    "partition": ("Number of a partition.", _INT32),
    "group": ("Name of a consumer group.", _NAME_SCHEMA),
    "sink": ("Name of a query that writes exactly once.", TOPIC_NAME_SCHEMA),
    "instance": ("Name of a consumer instance.", _NAME_SCHEMA),
    "consumer": ("Name of a consumer instance.", _NAME_SCHEMA),
    "broker": ("Id of a broker: of this one.", _INT32),
    "producer_id": (
        "Id of a producer.",
        {"type": "integer", "format": "int64", "minimum": 0, "maximum": INT64_MAX},
    ),
    "base_offset": (
        "Where a segment begins.",
        {"type": "integer", "format": "int64", "minimum": 0, "maximum": INT64_MAX},
    ),
}
_ANY_TEXT: tuple[str, Mapping[str, object]] = ("", {"type": "string", "minLength": 1})

_ERROR_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "description": "The one shape of every error; docs/reference/errors.md lists the numbers.",
    "required": ["error_code", "message", "kafka_error", "retriable", "request_id"],
    "properties": {
        "error_code": {"type": "integer", "enum": sorted(REGISTER)},
        "message": {"type": "string"},
        "kafka_error": {"type": "string"},
        "retriable": {"type": "boolean"},
        "request_id": {"type": "string"},
        "details": {"type": "object"},
        "validation_errors": {"type": "array", "items": {"type": "string"}},
        "record_errors": {"type": "array", "items": {"type": "object"}},
    },
}


# Errors of authentication, rate limits and authorization.
_WITH_PRINCIPAL = (40101, 42901)
_WITH_RIGHT = (40301,)
_SECURITY_SCHEMES: dict[str, object] = {
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
}


def describe(tables: Iterable[Routes], *, version: str) -> dict[str, object]:
    """The document over all routes; a route without a spec is left out."""
    described = [(route, endpoint_of(route.handler)) for table in tables for route in table]
    endpoints = [(route, spec) for route, spec in described if spec is not None]
    schemas = _component_schemas([spec for _, spec in endpoints])
    paths: dict[str, dict[str, object]] = {}
    refusals: dict[str, object] = {}
    seen: set[str] = set()
    for route, spec in endpoints:
        item = paths.setdefault(described_path(route.path), {})
        # Aliases of a path share a handler; an operation id must be unique.
        is_alias = spec.operation_id in seen
        seen.add(spec.operation_id)
        item[route.method.lower()] = _operation(route.path, spec, refusals, is_alias=is_alias)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kafkalog",
            "version": version,
            "summary": "Kafka's topic logs over HTTP",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": {"Error": _ERROR_SCHEMA, **schemas},
            "responses": dict(sorted(refusals.items())),
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


def described_path(path: str) -> str:
    """A route's path as the document has it: parameters without their patterns."""
    return _IN_PATH.sub(lambda found: f"{{{found[1]}}}", path)


def error_numbers(path: str, spec: Endpoint) -> tuple[int, ...]:
    """Every number of the register that the route may answer with."""
    numbers = {*_ALWAYS, *spec.errors}
    by_parameter = _BY_V3_PATH_PARAMETER if path.startswith(_V3) else _BY_PATH_PARAMETER
    if spec.access is not Access.OPEN:
        numbers.update(_WITH_PRINCIPAL)
    if spec.right is not None:
        numbers.update(_WITH_RIGHT)
    for name in _IN_PATH.findall(path):
        numbers.update(by_parameter.get(name, ()))
    if spec.parameters or path.startswith(_STRICT_PREFIXES):
        numbers.update(_WITH_QUERY)
    if spec.body:
        numbers.update(_WITH_BODY)
        if any(isinstance(model, type) for model in spec.body.values()):
            numbers.update(_WITH_MODEL)
    if spec.takes_json_alone:
        numbers.add(415)
    if spec.refuses_body:
        numbers.update((*_WITH_BODY, *_WITH_MODEL))
    if 40401 in numbers or any(isinstance(each, TopicsParameter) for each in spec.parameters):
        numbers.add(40002)  # a name that no topic can have
    return tuple(sorted(numbers))


def _operation(
    path: str, spec: Endpoint, refusals: dict[str, object], *, is_alias: bool
) -> dict[str, object]:
    suffix = "_" + re.sub(r"[^a-z0-9]+", "_", path.lower()).strip("_") if is_alias else ""
    operation: dict[str, object] = {
        "operationId": spec.operation_id + suffix,
        "tags": [spec.tag],
        "summary": spec.summary,
        "parameters": [*_path_parameters(path), *_query_parameters(spec)],
        "responses": _responses(path, spec, refusals),
    }
    if spec.description:
        operation["description"] = spec.description
    if spec.access is not Access.OPEN:
        # Whether one is asked for is the daemon's configuration: the last takes none.
        operation["security"] = [{name: []} for name in _SECURITY_SCHEMES] + [{}]
    if spec.right is not None:
        operation["x-access"] = {
            "action": spec.right.action.value,
            "resource": spec.right.resource.value,
        }
    if spec.body:
        operation["requestBody"] = {
            "required": spec.is_body_required,
            "content": _content(spec.body),
        }
    return operation


def _path_parameters(path: str) -> list[dict[str, object]]:
    found = []
    for name in _IN_PATH.findall(path):
        description, schema = PATH_PARAMETERS.get(name, _ANY_TEXT)
        parameter = {"name": name, "in": "path", "required": True, "schema": schema}
        found.append(parameter | ({"description": description} if description else {}))
    return found


def _query_parameters(spec: Endpoint) -> list[dict[str, object]]:
    return [
        {
            "name": each.name,
            "in": "query",
            "required": each.is_required,
            "description": each.description,
            "schema": each.schema,
        }
        for each in spec.parameters
    ]


def _responses(path: str, spec: Endpoint, refusals: dict[str, object]) -> dict[str, object]:
    """By status. ``refusals`` gets those that say nothing but error numbers: routes share them."""
    responses: dict[str, object] = {}
    for status, answer in spec.answers.items():
        response: dict[str, object] = {"description": answer.description}
        if answer.content:
            response["content"] = _content(answer.content)
        if answer.headers:
            response["headers"] = {name: {"schema": {"type": "string"}} for name in answer.headers}
        if answer.links:
            response["links"] = {
                link.operation_id: {
                    "operationId": link.operation_id,
                    "parameters": dict(link.parameters),
                }
                for link in answer.links
            }
        responses[str(status)] = response
    by_status: dict[int, list[int]] = {}
    for number in error_numbers(path, spec):
        by_status.setdefault(REGISTER[number].status, []).append(number)
    for status, numbers in sorted(by_status.items()):
        refusal = {
            "description": "; ".join(f"{each}: {REGISTER[each].meaning}" for each in numbers),
            "content": {media: {"schema": _reference("Error")} for media in (JSON, V2_JSON)},
        }
        known = cast("dict[str, object] | None", responses.get(str(status)))
        if known is None:
            name = "Error-" + "-".join(map(str, numbers))
            refusals[name] = refusal
            responses[str(status)] = {"$ref": f"#/components/responses/{name}"}
        else:  # a status of its own (a probe that says no with 503) has both shapes
            responses[str(status)] = {
                "description": f"{known['description']}; {refusal['description']}",
                "content": {
                    **cast("dict[str, object]", refusal["content"]),
                    **cast("dict[str, object]", known.get("content", {})),
                },
            }
    return responses


def _content(content: Mapping[str, Model]) -> dict[str, object]:
    return {media: {"schema": _schema(model)} for media, model in content.items()}


def _schema(model: Model) -> Mapping[str, object]:
    if isinstance(model, NamedType):
        return _reference(model.name)
    return _reference(model.__name__) if isinstance(model, type) else model


def _reference(name: str) -> dict[str, str]:
    return {"$ref": REFERENCE.format(model=name)}


def _component_schemas(endpoints: Iterable[Endpoint]) -> dict[str, object]:
    """Every class that a body or an answer names, with those that it names itself."""
    components = Components()
    request_models: dict[type[BaseModel], None] = {}
    for spec in endpoints:
        contents = [spec.body, *(answer.content for answer in spec.answers.values())]
        for content in contents:
            for model in content.values():
                if isinstance(model, type) and issubclass(model, BaseModel):
                    request_models.setdefault(model)
                elif isinstance(model, (type, NamedType)):
                    components.add(model)
    _, document = models_json_schema(
        [(model, "validation") for model in request_models], ref_template=REFERENCE
    )
    definitions = cast("dict[str, object]", document.get("$defs", {}))
    assert not definitions.keys() & components.schemas.keys()
    return dict(sorted({**definitions, **components.schemas}.items()))
