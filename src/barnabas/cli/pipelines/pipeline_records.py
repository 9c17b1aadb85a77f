"""`barnabas pipeline check`, `schema`, `preview` and `replay-dead-letters`: checks of a pipeline, and work on its
records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.pipelines.pipeline import app
from barnabas.extras import how_to_install
from barnabas.terminal.errors import EXIT_OK, CliError
from barnabas.terminal.options import AsJson, AsJsonAlready
from barnabas.terminal.output import count_of, print_json, summarize
from barnabas.terminal.runner import example

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.pipelines.plan.pipeline import PipelineSpec
    from barnabas.pipelines.serving.replay import ReplayReport

File = Annotated[Path, typer.Argument(metavar="FILE.yaml", show_default=False)]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "-b",
        "--bootstrap",
        envvar="BARNABAS_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="The cluster to talk to; takes precedence over the file's.",
        show_default=False,
    ),
]


@contextmanager
def opened(file: Path) -> Iterator[PipelineSpec]:
    """The checked pipeline of a file; an error in the block ends the command with one line."""
    if not file.is_file():
        raise CliError(f"{file}: no such file")
    try:
        from barnabas.pipelines.fronts.yaml.spec import load_spec
        from barnabas.pipelines.plan.errors import PipelineError
    except ImportError as error:
        raise CliError(
            f"pipelines need an extra that is not installed ({error.name}); install it with {how_to_install('pipelines')}"
        ) from None
    try:
        yield load_spec(file)
    except PipelineError as error:
        raise CliError(str(error)) from None


@contextmanager
def session(spec: PipelineSpec) -> Iterator[SparkSession]:
    """A Spark session for a short piece of work."""
    from barnabas.pipelines.spark.session.class_archive import find_archive
    from barnabas.pipelines.spark.session.start import start_session

    archive = find_archive()
    spark = start_session(f"barnabas {spec.name}", quick=True, conf=spec.spark, archive=archive)
    try:
        yield spark
    finally:
        spark.stop()


@app.command(
    epilog=example(
        "barnabas pipeline schema > pipeline.schema.json",
        "# in an editor with a YAML language server, as the first line of a pipeline file:",
        "# yaml-language-server: $schema=pipeline.schema.json",
    )
)
def schema(json: AsJsonAlready = False) -> int:
    """Print the JSON Schema of pipeline files, with which editors check and complete them."""
    try:
        from barnabas.pipelines.fronts.yaml.schema import pipeline_schema
    except ImportError:
        raise CliError("pipelines need PySpark: pip install 'barnabas[pipelines]'") from None
    print_json(pipeline_schema())
    return EXIT_OK


@app.command(epilog=example("barnabas pipeline check pipeline.yaml"))
def check(file: File, json: AsJson = False) -> int:
    """Check a pipeline file without running it or asking a broker: Spark plans it over no records.

    It also says how the records of each query are processed, and why, if not the direct way, and which state grows without
    a bound.
    """
    with opened(file) as spec:
        from barnabas.pipelines.compiler.checking import check_options, check_plan, ways
        from barnabas.pipelines.plan.growth import growing_state

        check_options(spec)
        with session(spec) as spark:
            check_plan(spark, spec)
            ways_by_output = ways(spark, spec)
        outputs = [output.destination for output in spec.outputs]
        steps = sum(len(relation.operators) for relation in spec.plan.relations.values())
        if json:
            print_json(
                {
                    "file": str(file),
                    "pipeline": spec.name,
                    "steps": steps,
                    "writes": outputs,
                    "ways": ways_by_output,
                    "grows": growing_state(spec.plan),
                }
            )
            return EXIT_OK
        print(f"{file}: pipeline {spec.name}, {count_of(steps, 'step')}, writes {', '.join(outputs)}")
        for name, way in ways_by_output.items():
            print(f"  {name}: {way}")
        for name, growth in growing_state(spec.plan).items():
            print(f"  {name}: {growth}")
    return EXIT_OK


@app.command(
    epilog=example(
        "barnabas pipeline preview examples/access_log/pipeline.yaml -n 2",
        "barnabas pipeline preview pipeline.yaml --topic logs --oldest --json",
    )
)
def preview(
    file: File,
    topic: Annotated[
        str | None,
        typer.Option("-t", "--topic", metavar="TOPIC", help="Which topic of the source.", show_default=False),
    ] = None,
    count: Annotated[
        int, typer.Option("-c", "-n", "--count", metavar="N", min=1, max=1000, help="How many records.")
    ] = 5,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", metavar="NAME", help="The output whose own steps are shown too.", show_default=False
        ),
    ] = None,
    oldest: Annotated[bool, typer.Option("--oldest", help="The oldest records, not the newest.")] = False,
    bootstrap: Bootstrap = None,
    json: AsJson = False,
) -> int:
    """Show what each step does to real records. Nothing is written."""
    with opened(file) as spec:
        from barnabas.pipelines.compiler.queries import address_of
        from barnabas.pipelines.serving.preview import preview as preview_records
        from barnabas.pipelines.serving.preview import render

        with session(spec) as spark:
            records = preview_records(
                spark,
                spec,
                address_of(spec, bootstrap),
                topic=topic,
                count=count,
                output=output,
                oldest=oldest,
            )
    if json:
        print_json([asdict(record) for record in records])
    elif records:
        print(render(records))
    else:
        summarize("the topic has no records yet")
    return EXIT_OK


@app.command(
    "replay-dead-letters",
    epilog=example(
        "barnabas pipeline replay-dead-letters pipeline.yaml --dry-run",
        "barnabas pipeline replay-dead-letters pipeline.yaml --where \"reason LIKE 'no match%'\" "
        "--repair 'value || \\'\"\\''",
    ),
)
def replay_dead_letters(
    file: File,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="Only these dead letters: a condition on value, key, reason, step, output, topic, partition, offset, "
            "attempts, timestamp.",
            show_default=False,
        ),
    ] = None,
    repair: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="The new value, computed from the same names.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Include letters that an earlier replay has processed.")
    ] = False,
    bootstrap: Bootstrap = None,
    json: AsJson = False,
) -> int:
    """Process dead letters again: what the pipeline can handle now goes to the outputs that lack it.

    Those that fail again go to the end of the dead-letter topic, with their newest reason. All others stay where they are.
    """
    with opened(file) as spec:
        from barnabas.pipelines.compiler.queries import address_of
        from barnabas.pipelines.serving.replay import replay

        with session(spec) as spark:
            report = replay(
                spark,
                spec,
                address_of(spec, bootstrap),
                where=where,
                repair=repair,
                dry_run=dry_run,
                from_beginning=from_beginning,
            )
    if json:
        print_json(asdict(report))
        return EXIT_OK
    for line in replay_lines(report, dry_run):
        print(line)
    return EXIT_OK


def replay_lines(report: ReplayReport, dry_run: bool) -> list[str]:
    """What a replay did, for people."""
    would = "would go" if dry_run else "went"
    lines = [
        f"{count_of(report.found, 'dead letter')}, {report.chosen:,} asked for: {report.replayed:,} {would} through"
    ]
    lines += [f"  {count:>7,}  to {name}" for name, count in report.outputs.items()]
    lines += [f"  {count:>7,}  for the running query of {name}" for name, count in report.waiting.items()]
    for reason, count in sorted(report.still_bad.items(), key=lambda row: -row[1]):
        lines.append(f"  {count:>7,}  failed again: {reason}")
    lines += [f"  {count:>7,}  stay where they are: {reason}" for reason, count in report.kept.items()]
    if report.left:
        lines.append(f"  {report.left:>7,}  not asked for: they stay where they are")
    return lines
