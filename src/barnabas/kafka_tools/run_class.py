"""kafka-run-class: a tool by its Java class, in the package of any release."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from barnabas.terminal.errors import EXIT_FAILED


def main(arguments: Sequence[str]) -> int:
    """Run the tool that arguments[0] names with the rest; its exit code."""
    from barnabas.kafka_tools.main import OF_CLASSES

    words = list(arguments)
    while words and words[0] in ("-daemon", "-loggc"):
        words.pop(0)
    if words and words[0] == "-name":
        words = words[2:]
    if not words:
        print("USAGE: kafka-run-class [-name servicename] classname [opts]", file=sys.stderr)
        return EXIT_FAILED
    short = words[0].rstrip("$").rpartition(".")[2]
    if short not in OF_CLASSES:
        known = ", ".join(OF_CLASSES)
        print(f"Error: Could not find or load main class {words[0]}; known are {known}", file=sys.stderr)
        return EXIT_FAILED
    module = importlib.import_module(f"barnabas.kafka_tools.{OF_CLASSES[short]}")
    # Two classes share a module: it distinguishes them by the name.
    code: int = module.main([short, *words[1:]] if module.__name__.endswith("zk_offsets") else words[1:])
    return code
