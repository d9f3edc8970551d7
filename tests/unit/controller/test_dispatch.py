from __future__ import annotations

from epd.controller.dispatch import Dispatcher
from epd.controller.outcome import Outcome


class Remembering:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.keys: list[str] = []

    async def reconcile(self, key: str) -> Outcome:
        self.keys.append(key)
        return Outcome(self.seconds)


async def test_each_key_goes_to_the_reconciler_of_its_kind() -> None:
    deployments, claims = Remembering(1.0), Remembering(2.0)
    dispatcher = Dispatcher(deployments=deployments, claims=claims)
    keys = ("ai/qwen", "claim/ai/ec", "claim/qwen")
    assert [(await dispatcher.reconcile(key)).requeue_after for key in keys] == [1.0, 2.0, 1.0]
    assert (deployments.keys, claims.keys) == (["ai/qwen", "claim/qwen"], ["claim/ai/ec"])
