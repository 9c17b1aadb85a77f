"""`barnabas sql test`: runs cases of statements without a server."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from barnabas.services.row import needs_extra
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import print_json


def run_cases(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE...]", help="Files or folders of cases: .json and .sql."),
    ] = None,
    sql_file: Annotated[
        Path | None, typer.Option("-s", "--sql-file", metavar="FILE", help="Statements of a single case.")
    ] = None,
    input_file: Annotated[
        Path | None,
        typer.Option("-i", "--input-file", metavar="FILE", help='Its records: {"inputs": [...]}.'),
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option("-o", "--output-file", metavar="FILE", help='What it writes: {"outputs": [...]}.'),
    ] = None,
    only: Annotated[
        str, typer.Option("-k", "--only", metavar="TEXT", help="Run the cases whose name holds this text.")
    ] = "",
    functions: Annotated[
        list[str] | None,
        typer.Option("--functions", metavar="MODULE|FILE.py", help="Functions in Python; may be repeated."),
    ] = None,
    json: AsJson = False,
) -> int:
    """Run cases of statements without a server, a broker or Spark. Exit code 1: a case has failed."""
    try:
        from barnabas.pipelines.plan.errors import PipelineError
        from barnabas.pipelines.sql.own_functions import load_functions
        from barnabas.pipelines.sql.trial.cases import BadCase, case_of_files, cases_of, run_case
    except ImportError as error:
        raise CliError(needs_extra("SQL", error.name, "pipelines")) from None
    try:
        load_functions(functions or ())
        cases = [case for file in files or [] for path in _files(file) for case in cases_of(path)]
        if sql_file is not None:
            cases.append(case_of_files(sql_file, input_file, output_file))
        elif input_file is not None or output_file is not None:
            raise UsageError("--input-file and --output-file belong to --sql-file: name the statements, too")
    except (BadCase, PipelineError) as error:
        raise CliError(str(error)) from None
    chosen = [case for case in cases if only in case.name]
    if not chosen:
        raise UsageError("no case was found: name files of cases, or --sql-file")
    begin, failed = time.monotonic(), 0
    results = []
    for case in chosen:
        result = run_case(case)
        results.append({"name": result.name, "passed": result.problem is None, "problem": result.problem})
        if result.problem is not None:
            failed += 1
            if not json:
                print(f"FAILED {result.name}\n       {result.problem}", file=sys.stderr)
    took = time.monotonic() - begin
    if json:
        print_json(results)
    else:
        print(f"{len(chosen) - failed} of {len(chosen)} cases passed ({took:.2f} s)")
    return EXIT_FAILED if failed else EXIT_OK


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix.lower() in (".json", ".sql"))
    return [path]
