"""The contents of compressed files, in unnamed files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

from barnabas.agent.files import BZIP2_BLOCK, CHUNK_BYTES


def _zstd(source: BinaryIO) -> Any:
    import zstandard

    return zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True)


MAGICS: Final[tuple[tuple[bytes, Callable[[BinaryIO], Any]], ...]] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
    (b"\x28\xb5\x2f\xfd", _zstd),
)


def opener(descriptor: int) -> Callable[[BinaryIO], Any] | None:
    """What reads a compressed file; None for every other file."""
    first = os.pread(descriptor, 10, 0)
    for magic, opens in MAGICS:
        if first.startswith(magic) and (magic != b"BZh" or first[4:10] == BZIP2_BLOCK):
            return opens
    return None


def is_packed(descriptor: int) -> bool:
    """Whether a file is compressed with gzip, bzip2, xz or zstd."""
    return opener(descriptor) is not None


def unpack(descriptor: int, folder: Path) -> int:
    """The descriptor of an unnamed file in the folder with the contents of a compressed file. Raises one of UNREADABLE
    (copies.py).
    """
    opens = opener(descriptor)
    assert opens is not None
    with (
        os.fdopen(os.dup(descriptor), "rb") as packed,
        opens(packed) as source,
        tempfile.TemporaryFile(dir=folder) as out,
    ):
        try:
            while data := source.read(CHUNK_BYTES):
                out.write(data)
        except Exception as error:
            if type(error).__name__ == "ZstdError":
                raise OSError(str(error)) from None
            raise
        out.flush()
        return os.dup(out.fileno())
