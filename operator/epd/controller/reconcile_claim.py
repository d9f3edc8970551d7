"""One reconcile of a claim: its collectors, made once for all EPDDeployments that share them.

    LIST users, collectors, pods -> roots -> desired -> plan -> write

All owner references of a collector go into one apply; two applies by one field manager would drop each other's. What
stands in a collector's way is kept in `problems`, and each user's own reconcile shows it; a claim has no status of
ours. Holds nothing else but memories that may be lost at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from epd.api import names
from epd.api.names import Reason
from epd.controller import kinds, plan, write
from epd.controller.build import Build
from epd.controller.cluster import Cluster
from epd.controller.errors import Forbidden, NamespaceTerminating, Rejected, Retryable
from epd.controller.keys import ClaimKey, claim_key
from epd.controller.kinds import Manifest, name_of
from epd.controller.observe_claim import ObservedClaim, fetch_absent, node_beside, observe_claim
from epd.controller.outcome import Outcome
from epd.controller.pods import Trouble
from epd.controller.users import Root, Users, users_of, without_template
from epd.controller.write import NameTaken, Writer

TAKEN_POLL_SECONDS: Final = 30.0
"""How often to look whether a stranger's object still has a collector's name: no watch of ours reports its end."""

_FOREGROUND: Final = "foregroundDeletion"
"""Finalizer of an owner whose dependents are deleted first (k8s.io/apimachinery pkg/apis/meta/v1)."""

Problems = dict[tuple[ClaimKey, str], Trouble]
"""By claim and sub-path: why a collector is not as it should be."""


class ClaimReconciler:
    """Reconciles keys `claim/namespace/claim`. Raises `errors.Retryable` for the queue to try again."""

    def __init__(
        self, cluster: Cluster, build: Build, problems: Problems, *, on_gone: Callable[[str], None] = lambda _key: None
    ) -> None:
        self._cluster, self._build, self._problems = cluster, build, problems
        self._on_gone = on_gone
        self._memos: dict[ClaimKey, dict[str, plan.Mark]] = {}
        self._told: dict[ClaimKey, str] = {}

    async def reconcile(self, key: str) -> Outcome:
        """Bring the claim's collectors to what its users ask for."""
        claim = claim_key(key)
        if claim is None:
            raise ValueError(f"{key} names no claim")
        seen = await observe_claim(self._cluster, claim)
        users = users_of(claim, seen.parents)
        problems: dict[str, Trouble] = {}
        refused: Forbidden | None = None
        try:
            for root in users.roots:
                if root.collected and (words := self._build.disagreement(root.users)):
                    problems[root.sub_path] = Trouble(Reason.USERS_DISAGREE, words)
                try:
                    seen = await self._root(root, seen)
                except NameTaken as e:
                    problems[root.sub_path] = Trouble(Reason.NAME_TAKEN, str(e))
                except Rejected as e:
                    problems[root.sub_path] = Trouble(Reason.REJECTED_BY_API_SERVER, str(e))
                except Forbidden as e:
                    problems[root.sub_path], refused = Trouble(Reason.RETRYING, str(e)), e
            seen = await self._prune(users, seen)
        except NamespaceTerminating:
            return Outcome()
        also = self._remember(claim, users, seen, problems)
        if refused is not None:
            raise Retryable(str(refused))
        reasons = {problem.reason for problem in problems.values()}
        return Outcome(
            TAKEN_POLL_SECONDS if Reason.NAME_TAKEN in reasons else None,
            stalled=bool(reasons & {Reason.NAME_TAKEN, Reason.REJECTED_BY_API_SERVER}),
            also=also,
        )

    async def _root(self, root: Root, seen: ObservedClaim) -> ObservedClaim:
        if not _wanted(root, seen):
            return seen
        users = tuple(user if self._build.problem(user) is None else without_template(user) for user in root.users)
        live = seen.child(kinds.DEPLOYMENT, names.collector(seen.key.claim, root.sub_path))
        node = node_beside(live, seen.pods, seen.key.claim)
        rendered = self._build.collector(users, access_modes=seen.access_modes, node=node)
        desired = tuple(_outliving(root, manifest) for manifest in rendered)
        seen = await fetch_absent(self._cluster, seen, desired)
        writer = Writer(self._cluster, self._memos.setdefault(seen.key, {}), seen)
        todo = plan.plan(desired, seen, writer.memo)
        write.refuse(todo.taken)
        for manifest in todo.apply:
            await writer.apply(manifest)
        writer.finish()
        return writer.observed

    async def _prune(self, users: Users, seen: ObservedClaim) -> ObservedClaim:
        if users.unreadable:
            return seen
        wanted = {names.collector(seen.key.claim, root.sub_path) for root in users.roots if root.collected}
        writer = Writer(self._cluster, self._memos.setdefault(seen.key, {}), seen)
        for live in seen.children.values():
            if (live["metadata"].get("labels") or {}).get(names.LABEL_COLLECTOR) not in wanted and seen.prunable(live):
                await writer.delete(live)
        writer.finish()
        return writer.observed

    def _remember(
        self, claim: ClaimKey, users: Users, seen: ObservedClaim, problems: dict[str, Trouble]
    ) -> tuple[str, ...]:
        for known in [known for known in self._problems if known[0] == claim]:
            del self._problems[known]
        self._problems.update({(claim, path): problem for path, problem in problems.items()})
        if not users.roots and not seen.children:
            self._memos.pop(claim, None)
            self._told.pop(claim, None)
            self._on_gone(str(claim))
            return ()
        # What users show of a collector has changed: they are looked at again, and only then.
        shown = plan.digest([_shown(root, seen, problems.get(root.sub_path)) for root in users.roots])
        if self._told.get(claim) == shown:
            return ()
        self._told[claim] = shown
        return tuple(f"{claim.namespace}/{user.metadata.name}" for root in users.roots for user in root.users)


def _wanted(root: Root, seen: ObservedClaim) -> bool:
    exists = seen.child(kinds.DEPLOYMENT, names.collector(seen.key.claim, root.sub_path)) is not None
    return root.collected and (exists or seen.placed)


def _outliving(root: Root, manifest: Manifest) -> Manifest:
    """Not owned by an object that is deleted in the foreground: its collector would go before its entries."""
    leaving = {user.metadata.uid for user in root.users if _FOREGROUND in user.metadata.finalizers}
    owners = [o for o in manifest["metadata"].get("ownerReferences") or () if o.get("uid") not in leaving]
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": owners}}


def _shown(root: Root, seen: ObservedClaim, problem: Trouble | None) -> object:
    name = names.collector(seen.key.claim, root.sub_path)
    live = seen.child(kinds.DEPLOYMENT, name)
    return [
        [user.metadata.uid for user in root.users],
        live and [live["metadata"].get("generation"), live.get("status")],
        [
            [name_of(pod), pod["metadata"].get("deletionTimestamp"), pod.get("status")]
            for pod in seen.collector_pods(name)
        ],
        problem and [problem.reason, problem.message],
    ]
