from __future__ import annotations

from typing import Any

import pytest

from epd.proxy.pods import Members
from epd.proxy.probe import Prober
from epd.proxy.transport import Cause
from unit.proxy.engines import Engines, broken, document, member

OK, SLOW, DEAD, ILL = document({}), broken(Cause.DISCONNECTED), broken(Cause.REFUSED), document({}, 503)
OURS = broken(Cause.LOCAL)


@pytest.mark.parametrize(
    ("script", "ready"),
    [
        ([OK], [True]),
        ([DEAD], [False]),
        ([SLOW, OK], [False, True]),
        ([OK, SLOW, OK], [True, True, True]),
        ([OK, SLOW, SLOW, OK], [True, True, False, True]),
        ([OK, DEAD, OK], [True, False, True]),
        ([OURS, OK, OURS, OURS, SLOW, OURS, SLOW], [False, True, True, True, True, True, False]),
        ([OK, ILL, OK], [True, False, True]),
    ],
)
async def test_rotation_follows_the_answers(script: list[Any], ready: list[bool]) -> None:
    engines, members = Engines(), Members()
    engines.scripts["d0"] = list(script)
    prober = Prober(transport=engines, members=members, given=[member("d0", ready=False)])
    seen = []
    for _ in script:
        await prober.probe_all()
        seen.append(members.all()[0].ready)
    assert seen == ready
    assert members.synced
