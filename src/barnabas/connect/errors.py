"""What connectors, transforms and converters raise."""

from __future__ import annotations


class ConnectError(Exception):
    """The task cannot go on: it fails, and is started again after a pause. The message says what happened, to what, and
    what to do."""


class RetriableError(ConnectError):
    """The other side does not answer, or is busy: the same call is made again later, with nothing lost."""


class DataError(ConnectError):
    """One record cannot be converted, transformed or stored. `errors.tolerance` says what happens to it."""


class OptionError(ConnectError):
    """The configuration is wrong. option: the name of the option, if it is one option's."""

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option
