"""The methods of Java that expressions call for what Spark has no function for."""

from __future__ import annotations

import struct

from barnabas.pipelines.plan.interpret.spark.values import NotInterpreted, Value, double_text


def java_method(of: str, name: str, value: Value) -> str:
    """The result of a static method, as text. Raises NotInterpreted."""
    if of == "java.lang.Double" and name == "longBitsToDouble":
        return double_text(struct.unpack(">d", struct.pack(">q", value))[0])
    if of == "java.lang.Double" and name in ("doubleToLongBits", "doubleToRawLongBits"):
        return str(struct.unpack(">q", struct.pack(">d", value))[0])
    if of == "java.lang.Character" and name == "toString":
        return chr(value)
    raise NotInterpreted(f"the method {of}.{name}")
