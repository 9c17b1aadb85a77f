"""Records whose schemas are in the Glue Schema Registry of AWS: their framing, and schemas from files of a folder.

Source: awslabs/aws-glue-schema-registry, the serializers for Kafka. Nothing is asked of AWS: a folder holds the answers of
`aws glue get-schema-version`, each in a file that is named after its version's id.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.errors import InvalidSchema

if TYPE_CHECKING:
    from barnabas.schemas.codecs.protobuf import ProtobufCodec

VERSION: Final = 3
"""The first byte."""
PLAIN: Final = 0
ZLIB: Final = 5
HEAD_BYTES: Final = 18
"""Version, compression, and the 16 bytes of the schema version's id."""
PAYLOAD_BYTES_MAX: Final = 64 << 20
"""Of a payload after it has been unpacked."""
FILE_BYTES_MAX: Final = 4 << 20
CODECS_MAX: Final = 500
LOOK_AGAIN_S: Final = 10.0
"""So long a file that is missing or wrong is not looked for again."""


def glue_version(data: bytes) -> str | None:
    """The id of the schema version that a record names; None if it has no such framing.

    The ids are random UUIDs, so what marks one as such tells the framing from other bytes that begin alike.
    """
    if len(data) < HEAD_BYTES or data[0] != VERSION or data[1] not in (PLAIN, ZLIB):
        return None
    version = uuid.UUID(bytes=bytes(data[2:HEAD_BYTES]))
    return str(version) if version.variant == uuid.RFC_4122 and version.version else None


def glue_payload(data: bytes) -> bytes:
    """What follows the framing, unpacked. Raises Mismatch."""
    payload = data[HEAD_BYTES:]
    if data[1] == PLAIN:
        return payload
    unpacking = zlib.decompressobj()
    try:
        unpacked = unpacking.decompress(payload, PAYLOAD_BYTES_MAX)
    except zlib.error as error:
        raise Mismatch(f"it says that it is packed with zlib, and is not: {error}") from None
    if unpacking.unconsumed_tail:
        raise Mismatch(f"unpacked it has more than {PAYLOAD_BYTES_MAX >> 20} MiB")
    if not unpacking.eof:
        raise Mismatch("its end is missing: it is packed with zlib, and cut")
    return unpacked


class GlueSchemas:
    """The schemas of a folder, read when a record names them. Called in threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._codecs: dict[str, tuple[str, Any]] = {}
        self._wrong: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def codec(self, version: str) -> tuple[str, Any] | str:
        """(kind, codec) of a schema version's id, or why there is none."""
        with self._lock:
            known = self._codecs.get(version)
            if known is not None:
                return known
            until_s, reason = self._wrong.get(version, (0.0, ""))
        if time.monotonic() < until_s:
            return reason
        made = self._made(version)
        kept: dict[str, Any] = self._wrong if isinstance(made, str) else self._codecs
        with self._lock:
            if len(kept) >= CODECS_MAX:
                kept.clear()
            kept[version] = (time.monotonic() + LOOK_AGAIN_S, made) if isinstance(made, str) else made
        return made

    def _made(self, version: str) -> tuple[str, Any] | str:
        from barnabas.schemas.codecs.schemas import PROTOBUF, make_codec

        path = self.folder / f"{version}.json"
        try:
            with path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX + 1)
            fields = json.loads(text[:FILE_BYTES_MAX])
            kind, definition = str(fields["DataFormat"]).upper(), str(fields["SchemaDefinition"])
        except FileNotFoundError:
            return (
                f"the schema version {version} is not in {self.folder}; fetch it with: aws glue get-schema-version "
                f"--schema-version-id {version} > {path.name}"
            )
        except OSError as error:
            return f"{path} cannot be read: {error.strerror or error}"
        except (ValueError, KeyError, TypeError, RecursionError):
            return f"{path} is not an answer of aws glue get-schema-version"
        try:
            codec = make_codec(kind, definition, ())
        except (InvalidSchema, ImportError) as error:
            return f"{path} cannot be used: {error}"
        return kind, NamedByIndex(codec) if kind == PROTOBUF else codec


class NamedByIndex:
    """Reads Protobuf as Glue writes it: the message is named by its place among all names of the file, sorted."""

    def __init__(self, codec: ProtobufCodec | Any) -> None:
        self._codec = codec
        self._names = sorted(codec.full_names())

    def decode(self, data: bytes) -> Any:
        """See Codec. Raises Mismatch."""
        index = shift = position = 0
        while True:
            if position >= min(len(data), 5):
                raise Mismatch("the record does not name its message")
            byte = data[position]
            index |= (byte & 0x7F) << shift
            position, shift = position + 1, shift + 7
            if not byte & 0x80:
                break
        if index >= len(self._names):
            raise Mismatch("the record names a message that its schema does not have")
        return self._codec.decode_as(self._names[index], data[position:])
