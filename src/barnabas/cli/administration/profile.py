"""`barnabas profile`: the clusters that are known by name."""

from __future__ import annotations

import os

from barnabas.terminal import profiles
from barnabas.terminal.errors import EXIT_OK
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import print_json, print_table, summarize
from barnabas.terminal.runner import example, new_app

app = new_app("Show the clusters that are known by name.")


@app.callback()
def profile() -> None:
    """Show the clusters that are known by name."""


@app.command("list", epilog=example("barnabas profile list", "barnabas --profile production topic list"))
def list_profiles(json: AsJson = False) -> int:
    """List the profiles, and show which one is used."""
    default, saved = profiles.read()
    name = os.environ.get(profiles.VARIABLE) or default
    rows = [
        {
            "profile": item.name,
            "bootstrap": item.bootstrap,
            "properties": sorted(item.properties),
            "used": item.name == name,
        }
        for item in saved.values()
    ]  # values may be secrets: only their names are shown
    if json:
        print_json(rows)
        return EXIT_OK
    print_table(("PROFILE", "BOOTSTRAP", "PROPERTIES", "USED"), [list(row.values()) for row in rows])
    if not rows:
        summarize(f"no profiles; write them to {profiles.path()} (see docs/cli.md)")
    return EXIT_OK
