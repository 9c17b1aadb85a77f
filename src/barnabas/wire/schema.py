"""How a message is declared: one class for all its versions, with the versions of every field.

    class HeartbeatRequest(Request, key=12, versions=(0, 4), flexible=4):
        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = string("3+", null="3+", default=None)

Version ranges use Kafka's notation: "3+", "0-12", "5". `null` gives the versions in which a field may be null, `tag` makes
it a tagged field (KIP-482), `ignorable` drops a value silently in a version without the field; otherwise encoding a
non-default value there raises WireError.

Declaring a class costs a few microseconds: only slots are created here, while `__init__`, decoders and encoders are
generated as plain Python source when they are first used (compile.py). An absent tagged struct is None, which Kafka
reads as the struct's defaults.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Self, dataclass_transform

from barnabas.wire.fields import FIXED, UNSET, Decoder, Encoder, Field, in_range
from barnabas.wire.primitives import SPLICE_BYTES_MIN, ZERO_UUID, Buffer, UnsupportedVersion, WireError

_DECODE_ERRORS: Final = (struct.error, IndexError, UnicodeDecodeError, OverflowError)
_ENCODE_ERRORS: Final = (struct.error, AttributeError, TypeError, ValueError, OverflowError)


def boolean(v: str = "0+", *, default: bool = False, ignorable: bool = False, tag: int | None = None) -> Any:
    return Field("bool", v, default, ignorable, tag)


def int8(v: str = "0+", *, default: int = 0, ignorable: bool = False, tag: int | None = None) -> Any:
    return Field("int8", v, default, ignorable, tag)


def int16(v: str = "0+", *, default: int = 0, ignorable: bool = False, tag: int | None = None) -> Any:
    return Field("int16", v, default, ignorable, tag)


def uint16(v: str = "0+", *, default: int = 0, ignorable: bool = False, tag: int | None = None) -> Any:
    return Field("uint16", v, default, ignorable, tag)


def int32(v: str = "0+", *, default: int = 0, ignorable: bool = False, tag: int | None = None) -> Any:
    return Field("int32", v, default, ignorable, tag)


def uint32(v: str = "0+", *, default: int = 0, ignorable: bool = False, tag: int | None = None) -> Any:
    return Field("uint32", v, default, ignorable, tag)


def int64(v: str = "0+", *, default: int = 0, ignorable: bool = False, tag: int | None = None) -> Any:
    return Field("int64", v, default, ignorable, tag)


def float64(v: str = "0+", *, default: float = 0.0, ignorable: bool = False, tag: int | None = None) -> Any:
    return Field("float64", v, default, ignorable, tag)


def uuid(v: str = "0+", *, ignorable: bool = False, tag: int | None = None) -> Any:
    return Field("uuid", v, ZERO_UUID, ignorable, tag)


def string(
    v: str = "0+",
    *,
    null: str = "",
    default: str | None = "",
    ignorable: bool = False,
    tag: int | None = None,
) -> Any:
    return Field("string", v, default, ignorable, tag, null)


def bytes_(
    v: str = "0+",
    *,
    null: str = "",
    default: bytes | None = b"",
    ignorable: bool = False,
    tag: int | None = None,
) -> Any:
    return Field("bytes", v, default, ignorable, tag, null)


def record_bytes(v: str = "0+", *, null: str = "", ignorable: bool = False) -> Any:
    """Record bytes: decoded to a memoryview of the message, encoded from bytes or anything with `.size`."""
    return Field("records", v, None, ignorable, None, null)


def array(
    element: type[Struct] | Callable[..., Any],
    v: str = "0+",
    *,
    null: str = "",
    default: Any = UNSET,
    ignorable: bool = False,
    tag: int | None = None,
) -> Any:
    """A list of structs, or of primitives, given by their declaring function (`array(int32)`)."""
    kind = element if isinstance(element, type) else element.__name__.rstrip("_").replace("boolean", "bool")
    return Field("array", v, default, ignorable, tag, null, kind)


def struct_(
    element: type[Struct], v: str = "0+", *, null: str = "", ignorable: bool = False, tag: int | None = None
) -> Any:
    """One struct in place. It is None by default when it may be null or is tagged."""
    return Field("struct", v, None if null or tag is not None else UNSET, ignorable, tag, null, element)


@dataclass_transform(kw_only_default=True)
class StructMeta(type):
    """Moves the declared fields from the class body to slots; nothing more happens here."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructMeta:
        fields = {key: value for key, value in namespace.items() if type(value) is Field}
        for key in fields:
            del namespace[key]
        namespace["__slots__"] = tuple(fields)
        namespace["FIELDS"] = fields
        return super().__new__(mcs, name, bases, namespace, **options)


class Struct(metaclass=StructMeta):
    """A group of fields inside messages. Keyword constructor; equal if class and fields are equal."""

    FIELDS: ClassVar[Mapping[str, Field]]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        # The first instance of a class generates the real constructor, which replaces this one.
        from barnabas.wire.compile import compile_init

        cls = type(self)
        cls.__init__ = compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.FIELDS)
        return f"{type(self).__name__}({shown})"

    def replace(self, **changes: Any) -> Self:
        """A shallow copy with these fields changed."""
        values = {name: getattr(self, name) for name in self.FIELDS}
        return type(self)(**{**values, **changes})


class _Decoders(dict[int, Decoder]):
    """The decoders of one message by version, generated on first use."""

    def __init__(self, message: type[Message]) -> None:
        self.message = message

    def __missing__(self, version: int) -> Decoder:
        from barnabas.wire.compile_decode import compile_decoder

        check_version(self.message, version)
        decoder = self[version] = compile_decoder(self.message, version)
        return decoder


class _Encoders(dict[int, Encoder]):
    """The encoders of one message by version, generated on first use."""

    def __init__(self, message: type[Message]) -> None:
        self.message = message

    def __missing__(self, version: int) -> Encoder:
        from barnabas.wire.compile_encode import compile_encoder

        check_version(self.message, version)
        encoder = self[version] = compile_encoder(self.message, version)
        return encoder


def check_version(message: type[Message], version: int) -> None:
    if version not in message.VERSIONS:
        low, high = message.VERSIONS[0], message.VERSIONS[-1]
        raise UnsupportedVersion(f"{message.__name__} has versions {low} to {high}, not {version}")


class Message(Struct):
    """A struct that is encoded on its own: a request or response body, or a record's key or value."""

    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[range] = range(0)
    FLEXIBLE_FROM: ClassVar[int | None] = None
    IS_REQUEST: ClassVar[bool] = False
    DECODERS: ClassVar[dict[int, Decoder]]
    ENCODERS: ClassVar[dict[int, Encoder]]

    def __init_subclass__(
        cls, *, key: int = -1, versions: tuple[int, int] = (0, 0), flexible: int | None = None
    ) -> None:
        cls.API_KEY = key
        cls.VERSIONS = range(versions[0], versions[1] + 1)
        cls.FLEXIBLE_FROM = flexible
        cls.DECODERS = _Decoders(cls)
        cls.ENCODERS = _Encoders(cls)

    @classmethod
    def decode(cls, buf: Buffer, version: int, pos: int = 0) -> Self:
        """The message whose body starts at `pos`; bytes after it are ignored.

        Record fields are views of `buf`. Raises WireError for everything but a well-formed body, and
        never allocates more than a small multiple of the input's size.
        """
        return cls.decode_at(buf, version, pos)[0]

    @classmethod
    def decode_at(cls, buf: Buffer, version: int, pos: int = 0) -> tuple[Self, int]:
        """Like `decode`, with the position after the body."""
        try:
            return cls.DECODERS[version](buf, pos, len(buf))
        except _DECODE_ERRORS as error:
            raise WireError(f"{cls.__name__} v{version} is truncated or malformed: {error}") from error

    def _encode(self, version: int, out: list[Any], cuts: list[int]) -> None:
        try:
            self.ENCODERS[version](self, out, cuts)
        except _ENCODE_ERRORS as error:
            raise WireError(f"{type(self).__name__} v{version} cannot be encoded: {error}") from error

    def encode(self, version: int) -> bytes:
        """The body's bytes. Raises WireError when a value does not fit the version."""
        out: list[Any] = []
        self._encode(version, out, [])
        try:
            return b"".join(out)
        except TypeError as error:
            raise WireError(
                f"{type(self).__name__} holds records that are not bytes; use encode_parts"
            ) from error

    def encode_parts(self, version: int, prefix: bytes = b"") -> list[Any]:
        """The body as parts to be sent in order, after `prefix`: bytes, and records as they are.

        Records with `.size` that are not bytes-like (a slice of a file) and long record bytes remain
        separate parts, uncopied; everything between them is joined.
        """
        out: list[Any] = [prefix]
        cuts: list[int] = []
        self._encode(version, out, cuts)
        if not cuts:
            return [b"".join(out)]
        parts: list[Any] = []
        start = 0
        for cut in cuts:
            parts.append(b"".join(out[start:cut]))
            parts.append(out[cut])
            start = cut + 1
        if start < len(out):
            parts.append(b"".join(out[start:]))
        return parts


class Request(Message):
    """A request body."""

    IS_REQUEST: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)


class Response(Message):
    """A response body."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)


class Data(Message):
    """A message inside another one or in a record: an int16 version, then the body.

    READ_NEWER: a version above the newest known one is read as the newest. Kafka does so for what group
    members send each other, where fields are only added at the end; newer stored records are refused.
    """

    READ_NEWER: ClassVar[bool] = False

    def __init_subclass__(cls, *, read_newer: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.READ_NEWER = read_newer

    @classmethod
    def decode_versioned(cls, buf: Buffer, pos: int = 0) -> Self:
        """Decode an int16 version and the body after it. Errors as `decode`."""
        if len(buf) < pos + 2:
            raise WireError(f"{cls.__name__} needs 2 bytes of version, has {len(buf) - pos}")
        version = int.from_bytes(buf[pos : pos + 2], "big", signed=True)
        newest = cls.VERSIONS[-1]
        return cls.decode(buf, newest if cls.READ_NEWER and version > newest else version, pos + 2)

    def encode_versioned(self, version: int | None = None) -> bytes:
        """The int16 version (the newest when None) and the body."""
        chosen = self.VERSIONS[-1] if version is None else version
        return chosen.to_bytes(2, "big", signed=True) + self.encode(chosen)


__all__ = [
    "FIXED",
    "SPLICE_BYTES_MIN",
    "UNSET",
    "Data",
    "Field",
    "Message",
    "Request",
    "Response",
    "Struct",
    "array",
    "boolean",
    "bytes_",
    "float64",
    "in_range",
    "int8",
    "int16",
    "int32",
    "int64",
    "record_bytes",
    "string",
    "struct_",
    "uint16",
    "uint32",
    "uuid",
]
