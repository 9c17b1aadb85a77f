"""CRC-32C (Castagnoli), by the hardware instruction; accepts any bytes-like object without copying it.

If possible, the extension in the `crc32c` package is loaded directly: the package's own `__init__` looks up its version in
the installed metadata, which takes 30 ms at start-up.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from typing import cast

type_crc32c = Callable[..., int]


def _load() -> type_crc32c:
    package = importlib.util.find_spec("crc32c")
    if package is None or not package.submodule_search_locations or "crc32c" in sys.modules:
        from crc32c import crc32c as function

        return cast(type_crc32c, function)
    for folder in package.submodule_search_locations:
        for suffix in EXTENSION_SUFFIXES:
            spec = importlib.util.spec_from_file_location("crc32c._crc32c", f"{folder}/_crc32c{suffix}")
            if spec is None or spec.loader is None:
                continue
            try:
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
            except ImportError:
                continue
            return cast(type_crc32c, module.crc32c)
    from crc32c import crc32c as function

    return cast(type_crc32c, function)


crc32c: type_crc32c = _load()
"""crc32c(data, value=0) -> unsigned 32-bit checksum; `value` continues an earlier one. Releases the GIL
above 32 KB."""
