"""The format that a user chose for keys or values, with its schema file, as a decoder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.archive.formats.avro_values import AvroDecoder, avro_type
from kafkalog.jobs.archive.formats.decoder import Framed, UnusableSchema
from kafkalog.jobs.archive.formats.json_types import inferred_type, json_schema_type, united_type
from kafkalog.jobs.archive.formats.json_values import JsonDecoder
from kafkalog.jobs.archive.formats.protobuf_values import ProtobufDecoder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.jobs.archive.formats.decoder import Decoder


@dataclass(frozen=True, slots=True)
class ChosenFormat:
    """The format of a part, ``key`` or ``value``, of records.

    name        ``bytes``, ``json``, ``avro`` or ``protobuf``
    schema      a file; of protobuf FILE:MESSAGE; None: JSON whose schema is inferred
    schema_ids  those of Confluent's framing; none: records are not framed
    """

    part: str
    name: str
    schema: str | None
    schema_ids: frozenset[int] = frozenset()

    @property
    def is_inferred(self) -> bool:
        """Whether the schema is that of a sample."""
        return self.name == "json" and self.schema is None

    def decoder(
        self, sample: Iterable[bytes] = (), has: pa.DataType | None = None
    ) -> Decoder | None:
        """The decoder; None: bytes stay bytes.

        sample  values to infer the type from
        has     the type of the table's column, if there is one

        Raises UnusableSchema; OSError if a file cannot be read.
        """
        if self.name == "bytes":
            return None
        try:
            decoder = self._decoder(sample, has)
        except UnusableSchema as error:
            raise UnusableSchema(f"{self.schema or self.part}: {error.message}") from error
        except ValueError as error:  # not JSON
            raise UnusableSchema(f"{self.schema} cannot be read: {error}") from error
        if not self.schema_ids:
            return decoder
        place = decoder.place if isinstance(decoder, ProtobufDecoder) else b""
        return Framed(decoder, self.schema_ids, place)

    def _decoder(self, sample: Iterable[bytes], has: pa.DataType | None) -> Decoder:
        if self.is_inferred:
            found = inferred_type(sample)
            if has is not None:
                found = has if found is None else united_type(has, found)
            if found is None:
                raise UnusableSchema(
                    "nothing can be inferred: no record of the sample is JSON with a field that is "
                    "not null; give a schema"
                )
            if pa.types.is_list(found) or pa.types.is_binary(found):
                raise UnusableSchema(f"the values would be {found}: only objects can be inferred")
            return JsonDecoder(found, is_inferred=True)
        assert self.schema is not None, "checked"
        if self.name == "protobuf":
            path, _, message = self.schema.rpartition(":")
            if not path:
                raise UnusableSchema(
                    "give DESCRIPTORS:MESSAGE, a file of protoc --descriptor_set_out and a name"
                )
            return ProtobufDecoder.of(SystemFilesystem().read_file(path), message)
        text = SystemFilesystem().read_file(self.schema).decode()
        document = json.loads(text)
        if self.name == "avro":
            return AvroDecoder.of(text)
        if _is_avro(document):
            return JsonDecoder(avro_type(document))
        if not isinstance(document, dict):
            raise UnusableSchema("it is neither a JSON Schema nor an Avro schema")
        found, is_closed = json_schema_type(document)
        return JsonDecoder(found, is_closed)


def _is_avro(document: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(document, dict) and document.get("type") == "record"
