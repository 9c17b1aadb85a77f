"""The largest requests to every route of the HTTP services, larger than those of tests/clients/test_one_victim_http.py."""

from __future__ import annotations

import pytest

from tests.clients.test_one_victim_http import ROUTES, AllServices, longest_turns, too_long
from tests.clients.test_one_victim_http import services as services
from tests.support.heavy_http import LARGEST_BYTES
from tests.support.leftovers import shared

pytestmark = pytest.mark.soak


@pytest.mark.parametrize(("service", "method", "path"), ROUTES, ids=[" ".join(route) for route in ROUTES])
def test_no_very_large_request_holds_up_the_services(
    services: AllServices, service: str, method: str, path: str
) -> None:
    with shared():
        turns = longest_turns(services, service, method, path, LARGEST_BYTES)
    assert too_long(service, turns) == {}, "(status, ms of CPU of a turn, ms with the lock), by what was sent"
