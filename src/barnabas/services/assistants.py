"""Runs the console's server for one assistant, over standard input and output."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from barnabas.services.access import Access
from barnabas.services.command import services_extra, warn_of_exposed
from barnabas.services.option import field_of
from barnabas.services.row import ServiceContext
from barnabas.services.rows.console import CONSOLE, OPTIONS, check_mcp, options_of
from barnabas.terminal.connection import target

SHARED: Final = {word: option for word, option in OPTIONS.items() if word != "mcp"}
"""The console's options, without that which serves assistants over HTTP."""


def run_assistant(
    bootstrap: str | None,
    properties: list[str] | None,
    may: str,
    user: str | None,
    values_given: Mapping[str, Any],
) -> int:
    """Serve until the assistant closes the streams; the exit code. given: the options by field. Raises CliError."""
    check_mcp(may, "--may")
    with services_extra(CONSOLE):
        from barnabas.console.assistants.serving import serve_streams
        from barnabas.console.login import Sessions
        from barnabas.console.main import make_console
        from barnabas.http.server import HttpOptions
        from barnabas.observe.logs import set_up

        set_up()
        warn_of_exposed(Access(), CONSOLE.secret_files(values_given))
        where, client = target(bootstrap, properties)
        values = {**{field_of(word): values_given[field_of(word)] for word in SHARED}, "mcp": may}
        options = options_of(
            ServiceContext(values, {**client, "bootstrap.servers": where}, HttpOptions(""), Access())
        )

    async def serve() -> None:
        console = make_console(options, Sessions(None), is_secure=False)
        await serve_streams(console, with_changes=may == "change", user=user)

    asyncio.run(serve())
    return 0
