"""zookeeper-shell: the commands of ZooKeeper's own shell, on a ZooKeeper or on a single broker's metadata file.

    zookeeper-shell HOST:PORT[/chroot] [-zk-tls-config-file FILE] [COMMAND args...]
    zookeeper-shell DATADIR [COMMAND args...]

What it prints, and on which of the two streams, is what ZooKeeper 3.9 prints.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.kafka_tools.shared.common import guarded, say
from barnabas.kafka_tools.zookeeper.nodes import Facts, Refusal, Tree
from barnabas.kafka_tools.zookeeper.trees import NO_VERSION, open_tree
from barnabas.terminal.ending import end_process
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE

NAME: Final = "zookeeper-shell"
EXIT_UNKNOWN: Final = 127
HISTORY_LINES: Final = 11
TLS_OPTION: Final = "-zk-tls-config-file"
USAGE: Final = f"""\
USAGE: zookeeper-shell HOST:PORT[/chroot] [{TLS_OPTION} FILE] [COMMAND args...]
       zookeeper-shell DATADIR [COMMAND args...]    the metadata of a single broker, without ZooKeeper

Example:
  zookeeper-shell localhost:2181 ls /brokers/ids
  zookeeper-shell localhost:2181 get /controller
"""


class Misused(Exception):
    """A command was not given what it needs; its syntax is printed."""


@dataclass(slots=True)
class Words:
    """The words after a command: its options and the rest."""

    flags: set[str] = field(default_factory=set)
    version: int = NO_VERSION
    rest: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, words: Sequence[str], flags: str, takes: str, least: int, most: int) -> Words:
        """flags, takes: letters of options without and with a value. Raises Misused."""
        parsed, left = cls(), list(words)
        while left:
            word = left.pop(0)
            letter = word[1:]
            if not word.startswith("-") or len(letter) != 1 or letter not in flags + takes:
                parsed.rest.append(word)
            elif letter in flags:
                parsed.flags.add(letter)
            elif not left or not left[0].lstrip("-").isdigit():
                raise Misused
            else:
                value = int(left.pop(0))
                parsed.version = value if letter == "v" else NO_VERSION
        if not least <= len(parsed.rest) <= most:
            raise Misused
        return parsed


def path_of(text: str) -> str:
    """A path as typed. Raises Refusal with ZooKeeper's reasons."""
    if not text.startswith("/"):
        raise Refusal("Path must start with / character")
    if len(text) > 1 and text.endswith("/"):
        raise Refusal("Path must not end with / character")
    if "//" in text:
        raise Refusal(f'Invalid path string "{text}" caused by empty node name specified')
    return text


def print_facts(facts: Facts) -> None:
    """A node's stat. What the tree does not keep is left out."""

    def time_text(milliseconds: int) -> str:
        return time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(milliseconds / 1000))

    rows = {
        "cZxid": hex(facts.czxid),
        "ctime": time_text(facts.ctime_ms),
        "mZxid": hex(facts.mzxid),
        "mtime": time_text(facts.mtime_ms),
        "pZxid": None if facts.pzxid is None else hex(facts.pzxid),
        "cversion": facts.cversion,
        "dataVersion": facts.version,
        "aclVersion": facts.aversion,
        "ephemeralOwner": hex(facts.owner),
        "dataLength": facts.data_length,
        "numChildren": facts.children,
    }
    for name, value in rows.items():
        if value is not None:
            print(f"{name} = {value}")


def below(tree: Tree, path: str) -> Iterator[str]:
    """A node and all below it, parents first."""
    yield path
    for name in tree.children(path):
        yield from below(tree, f"{path.rstrip('/')}/{name}")


def ls(tree: Tree, words: Words) -> None:
    """Print a node's children."""
    path = path_of(words.rest[0])
    if "R" in words.flags:
        for node in below(tree, path):
            print(node)
        return
    print(f"[{', '.join(tree.children(path))}]")
    if "s" in words.flags:
        print_facts(tree.get(path)[1])


def get(tree: Tree, words: Words) -> None:
    """Print a node's data."""
    data, facts = tree.get(path_of(words.rest[0]))
    print("null" if data is None else data.decode(errors="replace"))
    if "s" in words.flags:
        print_facts(facts)


def stat(tree: Tree, words: Words) -> None:
    """Print what is known about a node."""
    print_facts(tree.get(path_of(words.rest[0]))[1])


def create(tree: Tree, words: Words) -> None:
    """Create a node."""
    path, data, acl, *_ = [*words.rest, None, None]
    created_path = tree.create(
        path_of(path or ""),
        None if data is None else data.encode(),
        "e" in words.flags,
        "s" in words.flags,
        acl,
    )
    say(f"Created {created_path}")


def set_data(tree: Tree, words: Words) -> None:
    """Replace a node's data."""
    facts = tree.set(path_of(words.rest[0]), words.rest[1].encode(), words.version)
    if "s" in words.flags:
        print_facts(facts)


def delete(tree: Tree, words: Words) -> None:
    """Delete a node."""
    tree.delete(path_of(words.rest[0]), words.version)


def delete_all(tree: Tree, words: Words) -> None:
    """Delete a node and all below it."""
    for path in reversed(list(below(tree, path_of(words.rest[0])))):
        tree.delete(path, NO_VERSION)


def get_acl(tree: Tree, words: Words) -> None:
    """Print a node's ACL."""
    path = path_of(words.rest[0])
    for scheme, who, permissions in tree.get_acl(path):
        print(f"'{scheme},'{who}\n: {permissions}")
    if "s" in words.flags:
        print_facts(tree.get(path)[1])


def set_acl(tree: Tree, words: Words) -> None:
    """Replace a node's ACL, or those of all below it, too."""
    path = path_of(words.rest[0])
    paths = list(below(tree, path)) if "R" in words.flags else [path]
    for node in paths:
        facts = tree.set_acl(node, words.rest[1], words.version)
        if "s" in words.flags:
            print_facts(facts)


def add_auth(tree: Tree, words: Words) -> None:
    """Log in."""
    tree.add_auth(words.rest[0], words.rest[1] if len(words.rest) > 1 else "")


def sync(tree: Tree, words: Words) -> None:
    """Wait for what other servers know."""
    tree.sync(path_of(words.rest[0]))
    print("Sync is OK")


def count_below(tree: Tree, words: Words) -> None:
    """Print how many nodes are below a node."""
    print(sum(1 for _ in below(tree, path_of(words.rest[0]))) - 1)


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its syntax as ZooKeeper prints it, its options, and how many words it takes."""

    syntax: str
    run: Callable[[Tree, Words], None]
    flags: str = ""
    takes: str = ""
    least: int = 1
    most: int = 1


COMMANDS: Final = {
    "addauth": Command("scheme auth", add_auth, most=2),
    "create": Command("[-s] [-e] path [data] [acl]", create, "se", most=3),
    "delete": Command("[-v version] path", delete, "", "v"),
    "deleteall": Command("path [-b batch size]", delete_all, "", "b"),
    "get": Command("[-s] path", get, "s"),
    "getAcl": Command("[-s] path", get_acl, "s"),
    "getAllChildrenNumber": Command("path", count_below),
    "ls": Command("[-s] [-R] path", ls, "sR"),
    "set": Command("path data [-s] [-v version]", set_data, "s", "v", 2, 2),
    "setAcl": Command("[-s] [-v version] [-R] path acl", set_acl, "sR", "v", 2, 2),
    "stat": Command("path", stat),
    "sync": Command("path", sync),
}
OLD_NAMES: Final = {"ls2": ("ls", "-s"), "rmr": ("deleteall",)}
"""Commands of ZooKeeper 3.4, which books type, and what replaced them."""


def usage() -> str:
    """What is printed for help, and for a command that does not exist."""
    own = {"history": "", "quit": "", "help": ""}
    rows = {**{name: command.syntax for name, command in COMMANDS.items()}, **own}
    return "\n".join([f"{NAME} HOST:PORT|DATADIR cmd args", *(f"\t{n} {rows[n]}" for n in sorted(rows))])


class Shell:
    """Runs commands one after the other and remembers them."""

    def __init__(self, tree: Tree, address: str) -> None:
        self._tree = tree
        self._address = address
        self._typed: list[str] = []

    def run(self, words: Sequence[str]) -> int:
        """One command; its exit code."""
        self._typed.append(" ".join(words))
        name, *rest = [*OLD_NAMES.get(words[0], (words[0],)), *words[1:]]
        if name == "history":
            first = max(0, len(self._typed) - HISTORY_LINES)
            for number, line in enumerate(self._typed[first:], first):
                print(f"{number} - {line}")
            return EXIT_OK
        command = COMMANDS.get(name)
        if command is None:
            say(usage())
            if name == "help":
                return EXIT_OK
            say(f"Command not found: Command not found {name}")
            return EXIT_UNKNOWN
        try:
            command.run(
                self._tree, Words.parse(rest, command.flags, command.takes, command.least, command.most)
            )
        except Misused:
            say(f"{name} {command.syntax}")
            return EXIT_FAILED
        except Refusal as refusal:
            say(str(refusal))
            return EXIT_FAILED
        return EXIT_OK

    def prompt(self) -> None:
        """Ask for the next command, if somebody is there to be asked."""
        if sys.stdin.isatty():
            say(f"[zk: {self._address}(CONNECTED) {len(self._typed)}] ", end="")
            sys.stderr.flush()

    def read(self) -> int:
        """Commands of standard input until quit or its end; the exit code of the last."""
        if sys.stdin.isatty():
            import readline  # noqa: F401  # input is edited, and the arrow keys find earlier lines

            say("Welcome to ZooKeeper!")
        code = EXIT_OK
        self.prompt()
        for line in sys.stdin:
            words = split(line)
            if words[:1] in (["quit"], ["close"]):
                break
            if words:
                code = self.run(words)
            sys.stdout.flush()
            self.prompt()
        return code


def split(line: str) -> list[str]:
    """The words of a line. Text within quotes is one word; a quote inside a word is part of it, as in JSON."""
    words: list[str] = []
    left = line.strip()
    while left:
        quote = left[0] if left[0] in "'\"" and left.find(left[0], 1) > 0 else ""
        if quote:
            word, _, left = left[1:].partition(quote)
        else:
            word, *rest = left.split(None, 1)
            left = rest[0] if rest else ""
        words.append(word)
        left = left.lstrip()
    return words


def main(arguments: Sequence[str]) -> int:
    """Run the tool; its exit code."""
    words = list(arguments)
    if words[:1] == ["-server"]:
        words.pop(0)
    if not words or words[0] in ("-h", "--help", "-help"):
        print(USAGE, end="", file=sys.stdout if words else sys.stderr)
        return EXIT_OK if words else EXIT_USAGE
    address = words.pop(0)
    tls_file = None
    if len(words) > 1 and words[0] == TLS_OPTION:
        tls_file, words = words[1], words[2:]
    say(f"Connecting to {address}")
    tree = open_tree(address, tls_file)
    try:
        shell = Shell(tree, address)
        return shell.run(words) if words else shell.read()
    finally:
        tree.close()


def script() -> None:
    """Entry point of zookeeper-shell and zkCli.sh."""
    name = Path(sys.argv[0]).name.removesuffix(".sh")
    end_process(name, lambda: guarded(name, main, sys.argv[1:]))
