"""`barnabas mcp`: the console's pages and changes as tools of an assistant, which starts this command itself."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from barnabas.services.assistants import SHARED, run_assistant
from barnabas.services.command import parameters_of, with_parameters
from barnabas.terminal.options import Bootstrap, Properties
from barnabas.terminal.runner import example, new_app

app = new_app("Let an assistant see clusters, by the Model Context Protocol.")
May = Annotated[str, typer.Option("--may", metavar="read|change", help="What the assistant may do.")]
As = Annotated[
    str | None,
    typer.Option("--as", metavar="USER", help="The user of --roles whose rights the assistant has."),
]


def start(
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    may: May = "read",
    user: As = None,
    **options: Any,
) -> int:
    """Serve one assistant over standard input and output, until it closes them. Assistants start this by themselves."""
    return run_assistant(bootstrap, properties, may, user, options)


app.command(name="mcp", epilog=example("barnabas mcp -b kafka1:9092", "barnabas mcp --may change --as anna"))(
    with_parameters(start, parameters_of(SHARED))
)
