"""Compiled modules: every .pyx below src/ becomes an extension of the same dotted name.

What Cython adds to every module (memoryviews, above all) is compiled once, in a module of its own: that saves a third of the
build.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE = Path(__file__).parent / "src"
CORES = os.cpu_count() or 1
SHARED = SOURCE / "barnabas" / "cython_shared.c"
"""Cython writes it."""


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def extensions() -> list[Extension]:
    """Without debug information (-g0), a third of the compiler's time is saved."""
    return [
        Extension(name_of(path), [str(path.relative_to(SOURCE.parent))], extra_compile_args=["-O3", "-g0"])
        for path in [*sorted(SOURCE.rglob("*.pyx")), SHARED]
    ]


if __name__ == "__main__":  # processes that translate some of the modules may import this file
    setup(
        ext_modules=cythonize(
            extensions(),
            nthreads=CORES,
            compiler_directives={"language_level": 3},
            shared_utility_qualified_name=name_of(SHARED),
        ),
        options={"build_ext": {"parallel": CORES}},
    )
