"""Compiled modules: every .pyx below src/ becomes an extension of the same dotted name."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE = Path(__file__).parent / "src"

extensions = [
    Extension(
        ".".join(path.relative_to(SOURCE).with_suffix("").parts),
        [str(path.relative_to(SOURCE.parent))],
        extra_compile_args=["-O3"],
    )
    for path in sorted(SOURCE.rglob("*.pyx"))
]

setup(
    ext_modules=cythonize(extensions, compiler_directives={"language_level": 3}) if extensions else [],
    options={"build_ext": {"parallel": os.cpu_count()}},
)
