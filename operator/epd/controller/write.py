"""Writes of children, one by one: apply with what is remembered of it, delete, and the refusal of taken names.

What to write, `plan` decides; in which order, the caller.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Generic, Protocol, Self, TypeVar

from epd.api import names
from epd.controller import plan
from epd.controller.cluster import Cluster
from epd.controller.errors import Forbidden, NotFound, Retryable
from epd.controller.kinds import Manifest, kind_of, name_of, uid_of

logger = logging.getLogger(__name__)

COLLECTION_SECONDS = 2.0
"""How soon to look again for children of an earlier object of this name: the garbage collector needs about as long."""


class NameTaken(Exception):  # noqa: N818 (a state, told to the user)
    """A child's name belongs to something that is not ours."""


class Changing(plan.Snapshot, Protocol):
    """A snapshot that follows what is written."""

    def with_children(self, live: Iterable[Manifest], *, gone: Iterable[Manifest] = ()) -> Self:
        """The snapshot with newer states of some children."""


S = TypeVar("S", bound=Changing)


class Writer(Generic[S]):
    """Writes for one key. `memo` is kept between reconciles; `observed` becomes the state after the writes.

    `refused` collects what RBAC or an admission plugin forbade: one right that is missing, or a policy about one kind,
    must not keep back all that comes after it.
    """

    def __init__(self, cluster: Cluster, memo: dict[str, plan.Mark], observed: S) -> None:
        self._cluster = cluster
        self.memo = memo
        self.observed = observed
        self.refused: list[Forbidden] = []

    async def apply(self, manifest: Manifest, *, manager: str = names.FIELD_MANAGER) -> None:
        """Apply one child."""
        live = self.observed.child(kind_of(manifest), name_of(manifest))
        # The UID is a precondition: an object that was replaced since it was listed is not the one decided about.
        metadata = {**manifest["metadata"], "uid": uid_of(live)} if live is not None else manifest["metadata"]
        try:
            applied = await self._cluster.apply({**manifest, "metadata": metadata}, manager=manager)
        except Forbidden as e:
            self.refused.append(e)
            return
        logger.info("applied %s %s as %s", manifest["kind"], name_of(manifest), manager)
        if manager == names.FIELD_MANAGER:
            self.memo[uid_of(applied)] = plan.mark(manifest, applied)
        self.observed = self.observed.with_children([applied])

    async def delete(self, live: Manifest) -> None:
        """Delete one child."""
        try:
            await self._cluster.delete(live)
        except NotFound:
            pass
        else:
            logger.info("deleted %s %s", live["kind"], name_of(live))
        self.observed = self.observed.with_children((), gone=[live])

    def finish(self) -> None:
        """Forget children that are gone. Raises the first Forbidden, now that everything else was tried."""
        present = {uid_of(live) for live in self.observed.children.values()}
        for uid in set(self.memo) - present:
            del self.memo[uid]
        if self.refused:
            raise self.refused[0]


def refuse(taken: Iterable[plan.Taken]) -> None:
    """Raise for the first taken name: NameTaken, or Retryable when it is about to become free."""
    for one in taken:
        kind, name = one.manifest["kind"], name_of(one.manifest)
        if one.leaving:
            raise Retryable(
                f"{kind} {name} of an earlier {names.KIND} is still being collected", after=COLLECTION_SECONDS
            )
        raise NameTaken(
            f"{kind} {one.manifest['metadata']['namespace']}/{name} exists and belongs to {one.owner}; nothing is "
            f"applied. Delete it, or rename the {names.KIND}."
        )
