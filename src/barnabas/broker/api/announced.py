"""The APIs and versions that ApiVersions announces to a client, from the table (table.py)."""

from __future__ import annotations

from barnabas.broker.api import telemetry
from barnabas.broker.api.table import APIS, OWN_APIS, Api
from barnabas.wire.messages.api_versions import ApiVersion


def _range_of(api: Api) -> ApiVersion:
    return ApiVersion(api_key=api.key, min_version=api.versions[0], max_version=api.versions[-1])


class AnnouncedApis:
    """Chooses what is announced, by the client's software."""

    def __init__(self, pushed_metrics: telemetry.Telemetry) -> None:
        self._telemetry = pushed_metrics
        self._all = [_range_of(api) for api in APIS]
        self._without_telemetry = [row for row in self._all if row.api_key not in telemetry.APIS]
        self._own = [_range_of(api) for api in OWN_APIS]

    def to(self, software: tuple[str, str] = ("", ""), *, own: bool = False) -> list[ApiVersion]:
        """The rows for one client. software: (name, version) of the client. own: include the APIs for our own client."""
        rows = self._all if self._telemetry.is_announced_to(software) else self._without_telemetry
        return rows + self._own if own else rows

    def of_key(self, key: int) -> list[ApiVersion]:
        """The row of one API, as a list; empty for an API that is not announced."""
        return [row for row in self._all if row.api_key == key]
