"""`barnabas security`: make certificates, users and client files; see what a broker leaves open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnabas.extras import how_to_install
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import print_json
from barnabas.terminal.runner import example, new_app

app = new_app("Make what a secured broker and its clients need; see what a broker leaves open.")


@app.command(
    "init",
    epilog=example("barnabas security init /etc/barnabas/secure --host kafka.example.org --user alice"),
)
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write to, or to add to.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="A name or address of the broker; may be repeated."),
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option("-u", "--user", metavar="NAME", help="A user besides admin; may be repeated."),
    ] = None,
    json: AsJson = False,
) -> int:
    """Write a CA, the broker's certificate, users, and files for their clients."""
    from barnabas.security import folder as secured

    target = folder.expanduser().absolute()
    try:
        fresh = secured.create(target, host or [], user or [])
    except secured.FolderError as error:
        raise CliError(str(error)) from None
    except ImportError:
        raise CliError(f"certificates need the extra `security`: {how_to_install('security')}") from None
    except OSError as error:
        raise CliError(f"{error.filename or target}: {error.strerror or error}") from None
    if json:
        clients = {name: str(target / secured.CLIENTS / name) for name in fresh}
        print_json({"folder": str(target), "clients": clients})
        return EXIT_OK
    print(f"{target}: certificates are ready")
    for name in fresh:
        print(f"  {name}: client files in {target / secured.CLIENTS / name}")
    print(f"Start the broker with: barnabas start --secure {target} --listen HOST:9092")
    return EXIT_OK


@app.command("check", epilog=example("barnabas security check --config server.properties"))
def check(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="The broker's server.properties.")
    ] = None,
    secure: Annotated[
        Path | None,
        typer.Option("--secure", metavar="DIR", help="The folder, as for `barnabas start --secure`."),
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="The address, as for `barnabas start`.")
    ] = "localhost:9092",
    json: AsJson = False,
) -> int:
    """Tell what a broker with this configuration leaves open. Exit code 1: something."""
    from barnabas.config.loader import load
    from barnabas.config.option import ConfigError
    from barnabas.security import folder as secured
    from barnabas.security.openness import findings

    overrides: dict[str, str] = {}
    try:
        if secure is not None:
            overrides = {
                **secured.options(secure.expanduser().absolute()),
                "listeners": f"SASL_SSL://{listen}",
            }
        elif config is None:
            overrides = {"listeners": f"PLAINTEXT://{listen}"}
        problems = list(findings(load(config, overrides)))
    except (ConfigError, secured.FolderError) as error:
        raise CliError(str(error)) from None
    except OSError as error:
        raise CliError(f"cannot read {config}: {error.strerror}") from None
    if json:
        print_json([str(finding) for finding in problems])
        return EXIT_FAILED if problems else EXIT_OK
    for finding in problems:
        print(f"- {finding}")
    if not problems:
        print("Nothing is left open.")
    return EXIT_FAILED if problems else EXIT_OK
