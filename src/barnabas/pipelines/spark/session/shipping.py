"""Ships this package to the executors of a cluster, which need not have it installed.

A zip with the package and the small packages that it needs, with their compiled modules, is sent to the executors as an
archive (`spark.archives`). They unpack it, because Python cannot load compiled modules from a zip. Large packages that
every Python for Spark has must be installed there: pyarrow and pandas.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import barnabas

SHIPPED: Final = (
    "crc32c",
    "cramjam",
    "PyYAML",
    "scramp",
    "asn1crypto",
    "SQLAlchemy",
    "typing_extensions",
    "fastavro",
    "jsonschema-rs",
    "protobuf",
)
"""Distributions that are shipped with the package if they are installed here: scramp and asn1crypto for SASL/SCRAM,
SQLAlchemy and typing_extensions for databases, the last three for records with schemas."""
LEFT_OUT: Final = frozenset({".c", ".pyx", ".pxd", ".pyi", ".pyc"})
UNPACKED: Final = "barnabas_shipped"
"""The folder's name in the working directory of an executor."""


def cluster_settings(archive: Path) -> dict[str, str]:
    """Spark's settings that ship the archive of `build_zip` to the executors of a cluster."""
    return {"spark.archives": f"{archive.as_uri()}#{UNPACKED}", "spark.executorEnv.PYTHONPATH": UNPACKED}


def unpacked(archive: Path) -> Path:
    """The folder with the unpacked zip, made if it is missing; for the driver's own workers."""
    target = archive.with_suffix("")
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(Path(folder) / "package")
            try:
                os.rename(Path(folder) / "package", target)
            except OSError:
                if not target.exists():  # another process was first
                    raise
    return target


def build_zip(cache: Path) -> Path:
    """The zip of the packages installed now, made if it is missing; its name depends on the files' sizes and times."""
    files = sorted(_files())
    digest = hashlib.sha256()
    for name, path in files:
        state = path.stat()
        digest.update(f"{name}|{state.st_size}|{state.st_mtime_ns}\n".encode())
    target = cache / f"barnabas-{barnabas.__version__}-{digest.hexdigest()[:12]}.zip"
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        fresh = Path(folder) / "package.zip"
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
            for name, path in files:
                out.write(path, name)
        os.replace(fresh, target)
    return target


def _files() -> Iterator[tuple[str, Path]]:
    root = Path(barnabas.__file__).resolve().parent
    for path in root.rglob("*"):
        if path.is_file() and path.suffix not in LEFT_OUT:
            yield f"barnabas/{path.relative_to(root).as_posix()}", path
    for name in SHIPPED:
        try:
            listed = importlib.metadata.files(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        for entry in listed:
            path = Path(str(entry.locate()))
            if ".." not in entry.parts and path.suffix not in LEFT_OUT and path.is_file():
                yield entry.as_posix(), path
