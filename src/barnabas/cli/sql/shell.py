"""The shell: statements are typed, sent and answered, until Ctrl-D. What only a shell does (SET, DEFINE, RUN SCRIPT, SPOOL,
help, exit) is done here; everything else the server does."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import TextIOBase
from pathlib import Path
from typing import Any, Final, TextIO

from barnabas.cli.sql.client import Refused, SqlClient
from barnabas.cli.sql.printing import show_answer, show_rows
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.grammar import is_complete, read_statements
from barnabas.pipelines.fronts.sql.types import GENERIC, STRING, SqlType
from barnabas.terminal.errors import CliError
from barnabas.terminal.files import read_text

PROMPT: Final = "sql> "
MORE: Final = "...> "
WORDS: Final = (
    *(
        "STREAM",
        "TABLE",
        "STREAMS",
        "TABLES",
        "TOPICS",
        "QUERIES",
        "FROM",
        "WHERE",
        "GROUP BY",
        "PARTITION BY",
        "WINDOW",
    ),
    *(
        "TUMBLING",
        "HOPPING",
        "SESSION",
        "EMIT CHANGES",
        "LIMIT",
        "JOIN",
        "LEFT JOIN",
        "WITHIN",
        "AS",
        "WITH",
        "VALUES",
    ),
    *("INTO", "EXTENDED", "BEGINNING"),
)
"""Words of the language that completion offers, beside those that begin a statement."""
HELP: Final = """Statements end with a semicolon and may take several lines. Ctrl-C ends a query, Ctrl-D the shell.

  SHOW STREAMS; SHOW TABLES; SHOW TOPICS; SHOW QUERIES; SHOW FUNCTIONS; SHOW PROPERTIES;
  DESCRIBE name [EXTENDED];  DESCRIBE FUNCTION name;  EXPLAIN query;
  PRINT 'topic' FROM BEGINNING LIMIT 3;
  CREATE STREAM name (column TYPE KEY, ...) WITH (kafka_topic='...', value_format='JSON');
  CREATE STREAM|TABLE name AS SELECT ... EMIT CHANGES;
  SELECT ... EMIT CHANGES;   SELECT ... FROM table WHERE key = '...';
  INSERT INTO name VALUES (...);   TERMINATE query;   DROP STREAM name;
  SET 'auto.offset.reset' = 'earliest';   DEFINE x = '...';   RUN SCRIPT 'file.sql';   SPOOL 'file';

  help   history   clear   version   output json|csv|table   exit"""


@dataclass
class Shell:
    """One session. output: table, json or csv. properties, variables: what SET and DEFINE have said. rows_max, seconds_max:
    how many rows of a query are shown, and how long it is followed; None: until it ends."""

    client: SqlClient
    output: str = "table"
    rows_max: int | None = None
    seconds_max: float | None = None
    properties: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    spooled: _Spooled | None = None

    def run(self, text: str) -> None:
        """Carries out statements, one after the other. Raises CliError."""
        try:
            for statement in read_statements(text, self.variables, _AnyType()):
                if self.spooled is not None:
                    self.spooled.file.write(f"{PROMPT}{statement.text};\n")
                self.one(statement)
        except SqlError as error:
            raise Refused(error.shown(text)) from None

    def one(self, statement: s.Statement) -> None:
        """Carries out one statement. Raises CliError."""
        if isinstance(statement, s.SetProperty):
            self._set(statement)
        elif isinstance(statement, s.Define):
            if statement.value is None:
                self.variables.pop(statement.name, None)
            else:
                self.variables[statement.name] = statement.value
        elif isinstance(statement, s.RunScript):
            self._script(statement.path)
        elif isinstance(statement, s.Spool):
            self._spool(statement.path)
        elif isinstance(statement, s.Show) and statement.what == "VARIABLES":
            for name, value in sorted(self.variables.items()):
                print(f"{name} = {value}")
        elif isinstance(statement, s.Query | s.Print):
            self._query(statement.text)
        else:
            for answer in self.client.statements(statement.text + ";", self.properties):
                show_answer(answer, self.output)

    def _set(self, statement: s.SetProperty) -> None:
        if statement.value is None:
            self.properties.pop(statement.name, None)
            print(f"Successfully unset local property '{statement.name}'.")
        else:
            self.properties[statement.name] = statement.value
            print(f"Successfully changed local property '{statement.name}' to '{statement.value}'.")

    def _spool(self, path: str | None) -> None:
        """Writes what is shown to a file, too, from now on; None: no longer. Raises CliError."""
        if self.spooled is not None:
            print(f"Spooling to {self.spooled.file.name} ends")
            sys.stdout = self.spooled.before
            self.spooled.file.close()
            self.spooled = None
        if path is None:
            return
        try:
            file = Path(path).expanduser().open("a", encoding="utf-8")
        except OSError as error:
            raise CliError(f"{path} cannot be written: {error.strerror}") from None
        self.spooled = _Spooled(sys.stdout, file)
        sys.stdout = self.spooled
        print(f"Session will be spooled to {path}\nEnter SPOOL OFF to disable")

    def _script(self, path: str) -> None:
        self.run(read_text(path))

    def _query(self, text: str) -> None:
        lines = self.client.lines(text + ";", self.properties, self.seconds_max)
        try:
            show_rows(lines, self.output, self.rows_max)
        except KeyboardInterrupt:
            print("\nQuery terminated")
        finally:
            lines.close()  # type: ignore[attr-defined]

    # --- interactive -------------------------------------------------------------------------------

    def interact(self, history: Path) -> None:
        """Reads statements from a person, or from a pipe, until the end."""
        ask = _asker(history, self.words) if sys.stdin.isatty() else _plain
        text = ""
        while True:
            try:
                line = ask(MORE if text.strip() else PROMPT)
            except KeyboardInterrupt:
                text = ""
                continue
            except EOFError:
                break
            if not text.strip() and self._own(line.strip().rstrip(";"), history):
                if line.strip().rstrip(";").lower() in ("exit", "quit"):
                    break
                continue
            text += line + "\n"
            if not is_complete(text):
                continue
            try:
                self.run(text)
            except CliError as error:
                print(error, file=sys.stderr)
            except KeyboardInterrupt:
                print()
            text = ""
        if text.strip():
            print("the last statement has no semicolon, and was not run", file=sys.stderr)

    def _own(self, line: str, history: Path) -> bool:
        """Carries out a command of the shell itself; whether it was one."""
        word, _, rest = line.lower().partition(" ")
        if word in ("exit", "quit"):
            return True
        if word == "help":
            print(HELP)
        elif word == "clear" and not rest:
            print("\033[2J\033[H", end="")
        elif word == "history" and not rest:
            with contextlib.suppress(OSError):
                print(history.read_text().replace("\n+", "\n"), end="")
        elif word == "version" and not rest:
            print(self.client.call("GET", "/info")["KsqlServerInfo"]["version"])
        elif word == "output" and (not rest or rest in ("json", "csv", "table")):
            self.output = rest or self.output
            print(f"output: {self.output}")
        else:
            return False
        return True

    def words(self) -> Iterable[str]:
        """What completion offers: words of the language, functions, and the names that the server knows."""
        from barnabas.pipelines.fronts.sql.functions import FUNCTIONS
        from barnabas.pipelines.fronts.sql.grammar import READERS

        names: list[str] = []
        with contextlib.suppress(CliError):
            for answer in self.client.statements("SHOW STREAMS; SHOW TABLES;", {}):
                names += [row["name"] for row in answer.get("streams", answer.get("tables", []))]
        return sorted({*names, *FUNCTIONS, *READERS, *WORDS})


class _Spooled(TextIOBase):
    """Standard output that also goes to a file. before: what it was."""

    def __init__(self, before: TextIO, file: TextIO) -> None:
        self.before = before
        self.file = file

    def write(self, text: str) -> int:
        self.file.write(text)
        return self.before.write(text)

    def flush(self) -> None:
        self.file.flush()
        self.before.flush()

    def isatty(self) -> bool:
        return self.before.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.before.encoding


class _AnyType(dict[str, SqlType]):
    """Types by name, of which only the server knows what they are."""

    def get(self, name: str, default: Any = None) -> Any:
        return STRING if name not in GENERIC else default


Asker = Callable[[str], str]


def _plain(prompt: str) -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _asker(history: Path, words: Callable[[], Iterable[str]]) -> Asker:
    """Asks on a terminal, with history, highlighting and completion where the library for it is installed."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.lexers import PygmentsLexer
        from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]
    except ImportError:
        return input
    history.parent.mkdir(parents=True, exist_ok=True)
    session: Any = PromptSession(
        history=FileHistory(str(history)),
        lexer=PygmentsLexer(SqlLexer),
        completer=WordCompleter(lambda: list(words()), ignore_case=True),
        complete_while_typing=False,
    )
    return lambda prompt: str(session.prompt(prompt))


def lines_of(texts: Iterable[str]) -> Iterator[str]:
    """Statements of several texts, one after the other."""
    for text in texts:
        yield text if text.rstrip().endswith(";") else text + ";"
