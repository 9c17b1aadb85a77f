"""What a converter is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from barnabas.connect.options import ConfigDef, ConnectorOption
from barnabas.connect.schemas import Schema

Headers = list[tuple[str, bytes | None]]


class Converter:
    """Converts keys or values of one connector's records. Raises DataError for what it cannot convert."""

    options: ClassVar[tuple[ConnectorOption, ...]] = ()
    doc: ClassVar[str] = ""

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """config: the converter's own options, without the prefix. Raises OptionError."""
        self.config = ConfigDef(self.options).parse(config)
        self.is_key = is_key

    def encoder(self, topic: str) -> Callable[[Schema | None, Any, Headers], bytes | None]:
        """Makes bytes for records of a topic; may add to the headers."""
        raise NotImplementedError

    def decoder(self, topic: str) -> Callable[[bytes | None, Headers], tuple[Schema | None, Any]]:
        """Makes (schema, value) of a record's bytes and headers."""
        raise NotImplementedError
