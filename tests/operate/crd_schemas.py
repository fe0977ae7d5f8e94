"""Schemas of the Prometheus operator's objects, which no schema of Kubernetes has.

``.venv/bin/python -m tests.operate.crd_schemas`` makes ``crd_schemas.json`` anew from the custom
resource definitions in the operator's Go module (needs ``go``). Kept is what judges: no
descriptions, and an object takes no field that it does not name, because a cluster would drop it
without a word. Rules in CEL (``x-kubernetes-validations``) are not kept.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

SCHEMAS = Path(__file__).with_suffix(".json")
MODULE = "github.com/prometheus-operator/prometheus-operator"
VERSIONS = ("v0.60.1", "v0.85.0")  # an old one and a new one
KINDS = ("ServiceMonitor", "PrometheusRule")
_BOUNDS = {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
_JUDGING = {"type", "properties", "items", "required", "enum", "pattern", "anyOf", *_BOUNDS}


def faults(document: dict[str, Any], version: str) -> list[str]:
    """What a cluster with that version of the operator would refuse or drop; empty: nothing."""
    definition = json.loads(SCHEMAS.read_text(encoding="utf-8"))[version][document["kind"]]
    validator = jsonschema_rs.validator_for(definition["schema"])
    found = [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(document)]
    if document["apiVersion"] != definition["apiVersion"]:
        found.append(f"{document['apiVersion']} is not {definition['apiVersion']}")
    return found


def frozen(directory: Path) -> dict[str, Any]:
    """The definitions of each kind in a directory of the operator's sources."""
    found = {}
    for kind in KINDS:
        path = directory / f"monitoring.coreos.com_{kind.lower()}s.yaml"
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
        (version,) = (each for each in spec["versions"] if each["storage"])
        found[kind] = {
            "apiVersion": f"{spec['group']}/{version['name']}",
            "schema": judging(version["schema"]["openAPIV3Schema"]),
        }
    return found


def judging(schema: dict[str, Any]) -> dict[str, Any]:
    """A node of a schema with what judges, and no further fields where it names some."""
    kept = {key: value for key, value in schema.items() if key in _JUDGING}
    if "properties" in kept:
        kept["properties"] = {key: judging(each) for key, each in kept["properties"].items()}
        if "x-kubernetes-preserve-unknown-fields" not in schema:
            kept["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = judging(schema["additionalProperties"])
    if "items" in kept:
        kept["items"] = judging(kept["items"])
    return kept


def _module(version: str) -> Path:
    """Where Go keeps that version of the operator, fetched when it is not there."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{MODULE}@{version}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(json.loads(done.stdout)["Dir"])


def main() -> None:
    """Write the file."""
    made = {
        version: frozen(_module(version) / "example" / "prometheus-operator-crd")
        for version in VERSIONS
    }
    text = json.dumps({"source": MODULE, **made}, indent=1, sort_keys=True)
    SCHEMAS.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
