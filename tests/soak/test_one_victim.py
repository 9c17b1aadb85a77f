"""The heaviest requests of every API in every version, with more rows than in tests/clients/test_one_victim.py."""

from __future__ import annotations

import pytest

from barnabas.broker.api.table import APIS, OWN_APIS, Api
from barnabas.testing import Broker
from tests.clients.test_one_victim import broker as broker
from tests.clients.test_one_victim import longest_turns

pytestmark = pytest.mark.soak

ROWS = 20_000
TURN_CPU_MS_MAX = 500


@pytest.mark.parametrize("api", [*APIS, *OWN_APIS], ids=lambda api: api.name)
def test_no_very_heavy_request_holds_up_the_loop(broker: Broker, api: Api) -> None:
    too_long = {
        (version, shape): cpu_ms
        for version in api.versions
        for shape, cpu_ms in longest_turns(broker, api, version, ROWS).items()
        if cpu_ms > TURN_CPU_MS_MAX
    }
    assert too_long == {}, f"{api.name}: turns of so many ms of CPU"
