"""`barnabas agent`: ships the lines of growing files, as the command line or a configuration file says."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.agent.job import Job, key_bytes, ship
from barnabas.agent.running import Stop
from barnabas.agent.state import default_folder
from barnabas.agent.watcher import require_files
from barnabas.terminal.connection import ClusterAddress, connect
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson, AsJsonAlready, Bootstrap, Properties, Quiet, Verbose
from barnabas.terminal.output import count_of, note, print_json, print_table, size_text
from barnabas.terminal.runner import example, new_app
from barnabas.terminal.signals import ending

if TYPE_CHECKING:
    from barnabas.agent.config import AgentConfig

app = new_app("Ship the lines of growing files into topics.")

LOOK_SECONDS: Final = 0.2
ConfigFile = Annotated[
    Path,
    typer.Option("--config", "-c", metavar="FILE", help="The configuration (YAML).", show_default=False),
]
StateFolder = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="DIR", help="Where positions are kept. Default: ~/.local/state/barnabas/agent."
    ),
]


@app.callback(
    invoke_without_command=True,
    epilog=example(
        "barnabas agent --config /etc/barnabas/agent.yaml", "barnabas agent check --config agent.yaml",
        "barnabas agent tail /var/log/nginx/access.log --topic access-log",
    ),
)  # fmt: skip
def agent(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Ship what this file (YAML) names, until SIGTERM. SIGHUP reads it again.",
        ),
    ] = None,
    quiet: Quiet = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
) -> int:
    """Ship the lines of growing files into topics: those that a configuration names, or (`tail`) the command line."""
    if context.invoked_subcommand is not None:
        if config is not None:
            raise UsageError(f"--config FILE belongs after `{context.invoked_subcommand}`, or stands alone")
        return EXIT_OK
    if config is None:
        raise UsageError("name a configuration with --config FILE, or a command: tail, check, status, schema")
    return run_config(
        config, lambda agent_config: connection_of(agent_config, bootstrap, properties, verbose), quiet
    )


def read(path: Path) -> AgentConfig:
    """The configuration in a file. Raises UsageError."""
    try:
        from barnabas.agent.config import read_config
    except ImportError as error:
        from barnabas.extras import how_to_install

        raise CliError(
            f"configuration files need {error.name}, which is not installed; install it with {how_to_install('services')}"
        ) from None
    return read_config(path)


def connection_of(
    agent_config: AgentConfig, bootstrap: str | None, properties: list[str] | None, verbose: bool
) -> ClusterAddress:
    """How the cluster is reached: what the command line says goes first, then the configuration, then the profile."""
    base = connect(bootstrap, properties, verbose)
    where = bootstrap or agent_config.bootstrap or base.bootstrap
    return ClusterAddress(where, {**agent_config.properties, **base.properties}, base.verbose)


def run_config(path: Path, connection_for: Any, quiet: bool) -> int:
    """Ship what a configuration names until a signal; the exit code. Raises CliError."""
    from barnabas.agent.supervising import Supervisor

    agent_config = read(path)
    supervisor = Supervisor(agent_config, connection_for(agent_config))
    server = None
    if agent_config.listen is not None:
        server = serve_status(supervisor, agent_config.listen)
    stop, asked = Stop(), []
    with ending(stop.ask):
        signal.signal(signal.SIGHUP, lambda number, frame: asked.append(number))
        supervisor.start()
        if not quiet:
            where = "" if server is None else f"; status on {server.servers[0].url}"
            note(f"barnabas agent: ready, {count_of(len(agent_config.inputs), 'input')}{where}")
        while not stop.asked and not supervisor.has_ended():
            time.sleep(LOOK_SECONDS)
            if asked:
                asked.clear()
                reload(supervisor, path, connection_for)
        supervisor.stop()
    if server is not None:
        server.stop()
    return EXIT_OK


def reload(supervisor: Any, path: Path, connection_for: Any) -> None:
    """Go over to what the file says now; a mistake in it changes nothing."""
    try:
        agent_config = read(path)
        changes = supervisor.reload(agent_config, connection_for(agent_config))
    except CliError as error:
        note(f"barnabas agent: the configuration stays as it was: {error}")
        return
    note(f"barnabas agent: {path} was read again: {changes}")


def serve_status(supervisor: Any, listen: str) -> Any:
    """Serve metrics and status. Raises CliError."""
    try:
        from barnabas.agent.serving import serve
    except ImportError as error:
        from barnabas.extras import how_to_install

        raise CliError(
            f"`listen` needs {error.name}, which is not installed; install it with {how_to_install('services')}"
        ) from None
    return serve(supervisor, listen)


@app.command(epilog=example("barnabas agent check --config /etc/barnabas/agent.yaml"))
def check(config: ConfigFile, json: AsJson = False) -> int:
    """Check a configuration: each mistake is reported with its line; show which files its inputs match now."""
    import glob

    agent_config = read(config)
    rows = []
    for input in agent_config.inputs:
        paths = sorted({path for pattern in input.files for path in glob.glob(pattern, recursive=True)})
        kept = [path for path in paths if not any(rule.search(path) for rule in input.looks.exclude)]
        source = "" if input.source is None else input.source.kind
        rows.append({"input": input.name, "topic": input.topic, "source": source, "files": kept})
    if json:
        print_json(rows)
        return EXIT_OK
    print_table(
        ["INPUT", "TOPIC", "SOURCE"],
        [[row["input"], row["topic"], row["source"] or count_of(len(row["files"]), "file")] for row in rows],
    )
    return EXIT_OK


@app.command(epilog=example("barnabas agent schema > agent.schema.json"))
def schema(json: AsJsonAlready = False) -> int:
    """Print the JSON Schema of configurations, for editors."""
    from barnabas.agent.config import schema as schema_of_config

    print_json(schema_of_config())
    return EXIT_OK


@app.command(epilog=example("barnabas agent status", "barnabas agent status --config agent.yaml --json"))
def status(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Use the state folder that it names."),
    ] = None,
    state_folder: StateFolder = None,
    json: AsJson = False,
) -> int:
    """Show how far each file was shipped, and which agents run."""
    from dataclasses import asdict

    from barnabas.agent.reporting import statuses

    folder = state_folder or (default_folder() if config is None else read(config).state)
    topics = [*statuses(folder)]
    if json:
        print_json([asdict(topic) | {"behind": sum(file.behind for file in topic.files)} for topic in topics])
        return EXIT_OK
    print_table(
        ["TOPIC", "INPUT", "AGENT", "FILE", "RECORDS", "SHIPPED", "BEHIND"],
        [
            [
                topic.topic,
                topic.input or "-",
                "runs" if topic.runs else "-",
                file.path,
                f"{file.records:,}",
                size_text(file.position),
                "gone" if file.size is None else size_text(file.behind),
            ]
            for topic in topics
            for file in topic.files
        ],
    )
    return EXIT_OK


@app.command(
    epilog=example(
        "barnabas agent tail /var/log/nginx/access.log --topic access-log",
        "barnabas agent tail 'logs/*.log' --topic logs --once --json",
    )
)
def tail(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Files or quoted patterns ('logs/*.log').", show_default=False),
    ],
    topic: Annotated[
        str, typer.Option("-t", "--topic", metavar="TOPIC", show_default=False, help="Where to.")
    ],
    once: Annotated[
        bool,
        typer.Option("--once/--follow", help="Stop at the end of the files, or follow them as they grow."),
    ] = False,
    state_folder: StateFolder = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget the positions: ship everything again.")
    ] = False,
    key: Annotated[
        str,
        typer.Option(metavar="KEY", help="none, file (its path: keeps a file's order), host, or any text."),
    ] = "none",
    headers: Annotated[
        bool,
        typer.Option(
            "--headers/--no-headers",
            help="Say in headers from which file and position a record comes; this also prevents duplicates after a kill.",
        ),
    ] = True,
    codec: Annotated[
        str, typer.Option("-z", "--compress", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
    ] = "lz4",
    quiet: Quiet = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Ship each line of the files as one record, byte for byte, and remember how far it came.

    Renamed, recreated and truncated files are followed. A line counts as shipped when all in-sync
    replicas have it. Exit code 3: some lines did not arrive (they are tried again by the next run)
    or were too large for the topic.
    """
    for name in require_files(files, may_come=not once):
        note(f"barnabas agent tail: {name}: no such file yet; waiting for it")
    connection = connect(bootstrap, properties, verbose)
    job = Job(
        connection, topic, [*files], state_folder or default_folder(), {"compression.type": codec},
        key_bytes(key), headers, once, quiet, reset,
    )  # fmt: skip
    stop = Stop()
    with ending(stop.ask):
        return job.keep_shipping(stop, lambda run: ship(run, once, json))
