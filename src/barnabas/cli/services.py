"""What the commands that serve HTTP have in common: options, the extra that they need, and running until a signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.cli.errors import CliError
from barnabas.extras import how_to_install

if TYPE_CHECKING:
    from barnabas.http.server import HttpOptions, HttpServer

MEGABYTE: Final = 1 << 20

Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="The address to serve.")]
Cors = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN", help="Web pages that may call it, * for all; may be repeated.", show_default=False
    ),
]
BodyMb = Annotated[int, typer.Option(metavar="MB", help="The largest request body.")]
TimeoutS = Annotated[float, typer.Option(metavar="S", help="How long a request may take.")]


@contextmanager
def services_extra(who: str) -> Iterator[None]:
    """Around the imports of a service; who: what needs them, for the CliError where they are not installed."""
    try:
        yield
    except ImportError as error:
        raise CliError(
            f"{who} needs an extra that is not installed ({error.name}); install it with {how_to_install('services')}"
        ) from None


def http_options(
    listen: str, body_mb: int, timeout_s: float, cors: Sequence[str] | None = None
) -> HttpOptions:
    """The options of the command line, as the server takes them."""
    from barnabas.http.guard import Limits
    from barnabas.http.server import HttpOptions

    return HttpOptions(listen, Limits(body_mb * MEGABYTE, timeout_s), tuple(cors or ()))


def serve(server: HttpServer, ready: Callable[[], str]) -> int:
    """Serve until a signal; the exit code. ready: the line that says that it answers. Raises CliError."""
    from barnabas.http.server import ServiceError, run, say

    try:
        return run([server], lambda: say(ready()))
    except ServiceError as error:
        raise CliError(str(error)) from None
