"""`barnabas connect new`: a package with a connector, its options and a test, to begin with."""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.cli.connect.connect import app
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import print_json
from barnabas.terminal.runner import example

PROJECT: Final = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["barnabas"]

[project.entry-points."barnabas.connectors"]
{name} = "{module}:{kind}"

[tool.setuptools]
py-modules = ["{module}"]
"""
SOURCE: Final = '''\
"""Reads numbers. Replace `poll` by what reads your source."""

from barnabas.connect import ConnectorOption, SourceConnector, SourceRecord, Type


class {kind}(SourceConnector):
    """Records of a source that has one partition."""

    doc = "Numbers, one after the other."
    options = (
        ConnectorOption("topic", doc="The topic to write to."),
        ConnectorOption("batch.size", Type.INT, 10, lo=1, doc="How many records a poll returns."),
    )

    def poll(self, partition, offset):
        """Some records after `offset`, which is None at the beginning; nothing if there are none now."""
        begin = (offset or {{}}).get("next", 0)
        numbers = range(begin, begin + self.config["batch.size"])
        return [SourceRecord(self.config["topic"], {{"n": n}}, source_offset={{"next": n + 1}}) for n in numbers]
'''
SOURCE_TEST: Final = """\
from {module} import {kind}

from barnabas.testing.connect import run_source


def test_it_goes_on_where_it_has_committed():
    with run_source({kind}, {{"topic": "numbers", "batch.size": "2"}}) as source:
        assert [record.value["n"] for record in source.poll()] == [0, 1]
        source.restart()
        assert [record.value["n"] for record in source.poll()] == [2, 3]
"""
SINK: Final = '''\
"""Prints records. Replace `put` by what writes to your target."""

from barnabas.connect import ConnectorOption, SinkConnector


class {kind}(SinkConnector):
    """Each record is a line."""

    doc = "Prints records."
    options = (ConnectorOption("prefix", default="", doc="What each line begins with."),)

    def put(self, records):
        """Raise RetriableError to be called again later; give what can never be stored to self.context.report."""
        for record in records:
            print(f"{{self.config['prefix']}}{{record.value}}")
'''
SINK_TEST: Final = """\
from {module} import {kind}

from barnabas.testing.connect import run_sink


def test_records_are_printed(capsys):
    with run_sink({kind}, {{"prefix": ">"}}) as sink:
        sink.put([sink.record("events", {{"id": 1}})])
        assert sink.flush() == {{("events", 0): 1}}
    assert capsys.readouterr().out == ">{{'id': 1}}\\n"
"""


@app.command(epilog=example("barnabas connect new numbers", "barnabas connect new printer --sink"))
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    sink: Annotated[bool, typer.Option("--sink", help="A sink, not a source.")] = False,
    as_json: AsJson = False,
) -> int:
    """Write a package with a connector of your own and its test, into a new folder NAME."""
    module = name.replace("-", "_")
    if not module.isidentifier() or keyword.iskeyword(module):
        raise UsageError(f"{name!r} is no name for a package: letters, digits, - and _")
    folder = Path(name)
    kind = "".join(part.title() for part in module.split("_")) + ("Sink" if sink else "Source")
    texts = {
        "pyproject.toml": PROJECT,
        f"{module}.py": SINK if sink else SOURCE,
        f"test_{module}.py": SINK_TEST if sink else SOURCE_TEST,
    }
    try:
        folder.mkdir(parents=True)
        for file, text in texts.items():
            (folder / file).write_text(text.format(name=name, module=module, kind=kind))
    except FileExistsError:
        raise CliError(f"{folder} is there already; choose another name") from None
    except OSError as error:
        raise CliError(f"{folder} cannot be written: {error.strerror}") from None
    if as_json:
        print_json({"folder": str(folder), "class": f"{module}.{kind}", "files": sorted(texts)})
    else:
        print(f"{folder}: {', '.join(sorted(texts))}")
        print(
            f"try it: cd {folder} && pip install -e . && pytest; connector.class={name} finds it in a worker"
        )
    return EXIT_OK
