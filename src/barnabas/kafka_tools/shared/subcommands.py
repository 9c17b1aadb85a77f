"""What these tools share: a word that says what to do, and tables with a tab after each column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.kafka_tools.shared.parser import Parsed, Refused


def subcommand(program: str, choices: Mapping[str, str], parsed: Parsed) -> str:
    """The word that chooses what the tool does. Raises Refused.

    choices: each word with the options that it takes, for the usage.
    """
    usage = "\n".join(f"usage: {program} {word} {options}".rstrip() for word, options in choices.items())
    if not parsed.words:
        raise Refused(f"{usage}\n{program}: error: too few arguments", False)
    if parsed.words[0] not in choices:
        known = ", ".join(f"'{word}'" for word in choices)
        raise Refused(
            f"{usage}\n{program}: error: invalid choice: '{parsed.words[0]}' (choose from {known})", False
        )
    if len(parsed.words) > 1:
        raise Refused(f"{program}: error: unrecognized arguments: '{' '.join(parsed.words[1:])}'", False)
    return parsed.words[0]


def need(program: str, parsed: Parsed, *names: str) -> None:
    """Raises Refused when one of these options is missing."""
    for name in names:
        if name not in parsed:
            raise Refused(f"{program} {' '.join(parsed.words)}: error: argument --{name} is required", False)


def print_columns(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Columns filled to their widest cell, a tab after each."""
    texts = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in texts) for i in range(len(heads))]
    for line in texts:
        print("".join(f"{text:<{width}}\t" for text, width in zip(line, widths, strict=True)))
