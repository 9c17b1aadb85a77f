"""The rights that an API requires: the column `rights` of the table of APIs (table.py).

A right names an operation, a type of resource, and where the request names the resource: in one field (`Whole`; the
request is refused if the right is missing), or in each row of a list (`Each`; refused rows get an error while the others
are served). If that is not enough, the handler itself checks (`Asked`). Source: Kafka's KafkaApis.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Whole(NamedTuple):
    """Applies to the whole request. of: the field with the resource's name; "" for the cluster, which has no name."""

    operation: str
    resource: str
    of: str = ""


class Each(NamedTuple):
    """Applies to each row of a list in the request.

    rows, answers: the lists in request and answer. parts: the lists of partitions in their rows, if these have the errors.
    or_cluster: an operation on the cluster that suffices instead. together: one refused row prevents all others.
    resource "CONFIG": determined by the row's resource_type.
    """

    operation: str
    resource: str
    rows: str
    answers: str
    parts: tuple[str, str] | None = None
    or_cluster: str = ""
    together: bool = False


class Asked(NamedTuple):
    """The handler itself checks the rights, depending on what it finds."""

    operation: str
    resource: str


Right = Whole | Each | Asked
OPEN: Final[tuple[Right, ...]] = ()
"""Allowed for every connected client."""
