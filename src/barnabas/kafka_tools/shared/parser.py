"""Options as Kafka's tools read them (the rules of its option library, joptsimple).

`--name value` and `--name=value`; one dash is the same as two; an unambiguous beginning of a name is enough; an
option with an optional value takes the next word unless that is an option. Messages are
Kafka's.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

WIDTH: Final = 40


class Refused(Exception):
    """The command line is wrong; `show_usage` when Kafka would print its options after the message."""

    def __init__(self, message: str, show_usage: bool = True) -> None:
        super().__init__(message)
        self.show_usage = show_usage


@dataclass(frozen=True, slots=True)
class Opt:
    """One option. takes: "" for a flag, else the name of its value; optional: the value may be left out."""

    name: str
    help: str
    takes: str = ""
    optional: bool = False
    old: bool = False
    """Kept for scripts that were written for older tools; not shown."""
    aliases: tuple[str, ...] = ()


@dataclass(slots=True)
class Parsed:
    """What was given. A flag's values are empty strings."""

    values: dict[str, list[str]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def all(self, name: str) -> list[str]:
        """Every value of an option that may be repeated."""
        return self.values.get(name, [])

    def get(self, name: str) -> str | None:
        """The value of an option; None when it was not given. Raises Refused when it was given twice."""
        values = self.values.get(name)
        if values is None:
            return None
        if len(values) > 1:
            raise Refused(f"Found multiple arguments for option {name}, but you asked for only one", False)
        return values[0]

    def text(self, name: str, default: str = "") -> str:
        """The value, or `default`."""
        text_given = self.get(name)
        return default if text_given is None else text_given

    def number(self, name: str, default: int) -> int:
        """The value as a whole number. Raises Refused."""
        text = self.get(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise Refused(f"Cannot parse argument '{text}' of option {name}", False) from None


def is_number(word: str) -> bool:
    """Whether a word with a dash is a value: a number below zero."""
    return word[1:].isdigit()


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool's title and options."""

    title: str
    options: Sequence[Opt]

    def parse(self, arguments: Sequence[str]) -> Parsed:
        """Read a command line. Raises Refused."""
        by_name = {name: option for option in self.options for name in (option.name, *option.aliases)}
        parsed = Parsed()
        words = list(arguments)
        while words:
            word = words.pop(0)
            if not word.startswith("-") or word == "-":
                parsed.words.append(word)
                continue
            name, equals, value = word.lstrip("-").partition("=")
            option = by_name.get(name) or self._begins_with(name)
            values = parsed.values.setdefault(option.name, [])
            if not option.takes:
                values.append("")
            elif equals:
                values.append(value)
            elif words and (not option.optional or not words[0].startswith("-") or is_number(words[0])):
                values.append(words.pop(0))
            elif option.optional:
                values.append("")
            else:
                raise Refused(f"Option {option.name} requires an argument", False)
        return parsed

    def _begins_with(self, name: str) -> Opt:
        options = [option for option in self.options if name and option.name.startswith(name)]
        if len(options) == 1:
            return options[0]
        if options:
            names = ", ".join(option.name for option in options)
            raise Refused(f"{name} is not a recognized option (did you mean one of {names}?)", False)
        raise Refused(f"{name} is not a recognized option", False)

    def usage(self) -> str:
        """The options in Kafka's two columns."""
        lines = [self.title, f"{'Option':<{WIDTH}}Description", f"{'------':<{WIDTH}}-----------"]
        for option in sorted(self.options, key=lambda option: option.name):
            if not option.old:
                lines += self._rows(option)
        return "\n".join(lines) + "\n"

    def _rows(self, option: Opt) -> Iterable[str]:
        value = f"[{option.takes}]" if option.optional else f"<{option.takes}>"
        left = f"--{option.name}" + (f" {value}" if option.takes else "")
        lefts = textwrap.wrap(left, WIDTH - 2, subsequent_indent="  ", break_long_words=False)
        rights = textwrap.wrap(option.help, 110 - WIDTH, subsequent_indent="  ")
        for i in range(max(len(lefts), len(rights))):
            left_text = lefts[i] if i < len(lefts) else ""
            yield f"{left_text:<{WIDTH}}{rights[i] if i < len(rights) else ''}".rstrip()

    def need(self, parsed: Parsed, *names: str) -> None:
        """Raises Refused when one of these options is missing."""
        for name in names:
            if name not in parsed:
                raise Refused(f'Missing required argument "[{name}]"')


BOOTSTRAP: Final = Opt(
    "bootstrap-server", "The server to connect to: HOST1:PORT1,HOST2:PORT2.", "String: server"
)
OLD_SERVERS: Final = (
    Opt("broker-list", "The old name of --bootstrap-server.", "String: servers", old=True),
    Opt("zookeeper", "Of old tools: the brokers that are registered there.", "String: hosts", old=True),
    Opt("zk-tls-config-file", "Of old tools: how ZooKeeper is reached.", "String: file", old=True),
    Opt("new-consumer", "Of old tools.", old=True),
)
COMMAND_CONFIG: Final = Opt("command-config", "Property file for the client.", "String: config file")
COMMAND_PROPERTY: Final = Opt(
    "command-property", "A property for the client, name=value.", "String: property"
)
COMMON: Final = (
    BOOTSTRAP,
    *OLD_SERVERS,
    COMMAND_CONFIG,
    COMMAND_PROPERTY,
    Opt("help", "Print usage information."),
    Opt("version", "Display the version."),
)
