"""Collectors of a history: they start again when they crash, and make passes as the collector's loop does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from epd.collector.asking import Asker
from epd.collector.collection import Collection
from epd.collector.inputs import Liveness
from epd.collector.policy import NOTHING
from epd.collector.result import PassResult
from epd.collector.seen import Root
from histories.cluster import CLAIM, NAMESPACE, Api, Cluster
from histories.engines import ROOT
from histories.memory_fs import Files
from histories.memory_tree import Inode
from histories.process import Process

if TYPE_CHECKING:
    from histories.world import World


def collector(world: World, name: str, *, intruder: bool = False, after: float = 0.0) -> None:
    """A collector that is started again when it crashes."""
    world.start(
        "collector",
        name,
        lambda process: _collect(world, process, intruder),
        after=after,
        habits=world.habits(collector=True),
        ended=lambda: collector(world, name, intruder=intruder, after=world.rng.uniform(1, 600)),
    )


def _collect(world: World, process: Process, intruder: bool) -> None:
    make_pass = passes(world, process, intruder=intruder)
    while True:
        process.sleep(world.schedule.log_uniform(*world.scenario.pass_pace))
        result = make_pass()
        again = 0
        while result is not None and result.more and again < 3:
            result, again = make_pass(), again + 1


def passes(world: World, process: Process, *, intruder: bool = False) -> Callable[[], PassResult | None]:
    """Return what makes one pass, as the collector's loop does it."""
    cluster = _other_cluster(world) if intruder else world.cluster
    process.facts["policy"] = NOTHING
    process.files.witness = _intruded(world, process) if intruder else world.oracle.witness(process)
    asker = Asker(Api(cluster), namespace=NAMESPACE, root=Root(claim=CLAIM), clock=process.clock)

    def ask() -> Liveness:
        start, lies = world.schedule.now, cluster.lies
        answer = asker()
        lying = cluster.weather if cluster.lies > lies else ""
        process.facts["answer"] = (start, world.schedule.now, answer, lying)
        process.facts["answers"].append(answer)
        return answer

    collection = Collection(
        ROOT,
        name=process.name,
        ask=ask,
        files=process.files,
        clock=process.clock,
        sleep=process.sleep,
        nonce=process.nonce,
    )

    def one_pass() -> PassResult | None:
        brief = asker.begin()
        if brief.claim is None:
            return None
        process.facts["policy"] = brief.in_force.policy
        process.facts["answers"] = []
        result = collection.run(brief.claim, brief.in_force.policy)
        open_now = process.files.open_descriptors
        world.oracle.check(17, open_now == 0, f"{process.name} leaves {open_now} files open after a pass")
        world.count("passes")
        for (call, error), number in result.errors.items():
            world.counts[f"error: {call} {error}"] += number
        return result

    return one_pass


def _intruded(world: World, process: Process) -> Callable[[Files, str, Inode | None, str, Inode], None]:
    """The witness of a collector of another claim on the same root: it may change nothing."""

    def tell(files: Files, operation: str, parent: Inode | None, name: str, inode: Inode) -> None:
        if operation not in ("stat", "look"):
            world.oracle.check(2, False, f"{process.name} of another claim {operation} {name!r}")

    return tell


def _other_cluster(world: World) -> Cluster:
    """The namespace of another claim: it knows none of our versions."""
    cluster = Cluster(world.schedule, claim_uid="claim-2")
    cluster.apply("theirs", 99, "Managed", world.scenario.policy)
    return cluster
