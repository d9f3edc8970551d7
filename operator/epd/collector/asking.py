"""Asks the API server what a pass must know, and keeps the guard between answers. Decides nothing by itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from epd.collector.apiserver import ApiServer
from epd.collector.endpoint import ApiError
from epd.collector.inputs import Claim, Liveness, Policy
from epd.collector.listing import get_claim, list_namespace
from epd.collector.liveness import Guard, liveness, named_versions, unknown
from epd.collector.policy import InForce, policy_in_force
from epd.collector.seen import Listed, Root, SeenClaim

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What a pass is given. `claim` is None where the claim does not exist or was never seen."""

    claim: Claim | None
    in_force: InForce
    problem: str = ""
    """Why it is not of now; then the pass learns of no live version, so it finishes what was begun, and no more."""


class Asker:
    """Answers a `Collection`: which versions live. For one thread at a time; the answers may be read by any."""

    def __init__(
        self, api: ApiServer, *, namespace: str, root: Root, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._root = root
        self._clock = clock
        self._guard = Guard()
        self._claim: SeenClaim | None = None
        self._brief = Brief(claim=None, in_force=InForce(), problem="the API server was not asked yet")
        self.last: Liveness | None = None
        """The last answer, for status and metrics; None before the first."""
        self.last_valid: float | None = None
        """When the last valid one was taken, by the monotonic clock; None before the first."""

    def begin(self) -> Brief:
        """Ask for claim and policy, which stay the same for one pass. Raises nothing."""
        taken = self._clock()
        try:
            self._claim = get_claim(self._api, self._namespace, self._root.claim)
            listed = list_namespace(self._api, self._namespace, clock=self._clock)
        except ApiError as error:
            self._brief = Brief(claim=self._brief.claim, in_force=self._brief.in_force, problem=str(error))
            self._remember(unknown(str(error), taken=taken))
        else:
            self._brief = Brief(claim=self._known_claim(), in_force=self._in_force(listed))
            self._remember(self._judged(listed))
        return self._brief

    def __call__(self) -> Liveness:
        """Ask which versions live, by complete lists of now. Raises nothing: no answer is one that is not valid.

        A pass that began without a policy of now gets no valid answer, and neither does one whose policy was changed
        since: what it is about to do may just have been forbidden.
        """
        return self._remember(self._ask())

    def _ask(self) -> Liveness:
        taken = self._clock()
        if self._brief.problem:
            return unknown(self._brief.problem, taken=taken)
        try:
            listed = list_namespace(self._api, self._namespace, clock=self._clock)
        except ApiError as error:
            return unknown(str(error), taken=taken)
        return self._judged(listed)

    def _judged(self, listed: Listed) -> Liveness:
        named = named_versions(listed, self._root)
        policy = self._brief.in_force.policy
        doubt = self._guard.judge(named, taken=listed.taken, grace=policy.version_grace)
        if _rules(self._in_force(listed).policy) != _rules(policy):
            doubt = "garbageCollection was changed during the pass; the next one goes by it"
        return liveness(named, taken=listed.taken, now=self._clock(), doubt=doubt)

    def _remember(self, answer: Liveness) -> Liveness:
        if answer.valid:
            self.last_valid = answer.taken
        elif self.last is None or self.last.message != answer.message:
            log.warning("which versions live is not known: %s", answer.message)
        self.last = answer
        return answer

    def _in_force(self, listed: Listed) -> InForce:
        requested = self._claim.requested_bytes if self._claim else None
        return policy_in_force(listed.epds, self._root, requested_bytes=requested)

    def _known_claim(self) -> Claim | None:
        if self._claim is None:
            return None
        return Claim(name=f"{self._namespace}/{self._root.claim}", uid=self._claim.uid, adopts=self._claim.adopts)


def _rules(policy: Policy) -> tuple[object, ...]:
    """Without the sizes, whose versions come and go with every rollout."""
    return (
        policy.enabled,
        policy.dry_run,
        policy.version_grace,
        policy.entry_ttl,
        policy.min_idle,
        policy.high_percent,
        policy.low_percent,
        policy.evict_example,
    )
