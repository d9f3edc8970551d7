"""One history: a volume, a cluster, engines, collectors and everything that can go wrong, all drawn from one seed."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from histories.cluster import Cluster
from histories.collectors import collector
from histories.engines import EngineDied, Example, Managed
from histories.furnishing import furnish
from histories.hands import Hands
from histories.memory_tree import Volume
from histories.oracle import Oracle
from histories.process import Habits, Process, Site
from histories.scenario import draw
from histories.schedule import EPOCH, SECOND, Schedule
from histories.settle import settle
from histories.surroundings import clock_jumps, director, weather
from histories.vandal import vandal

GRAIN = 4_000_000
"""ns; of the time stamps of Linux's file systems at 250 Hz."""
RARE = ("Versions._condemn_with_spare", "Versions._rename", "Sweep._remove_old", "Eviction._look", "_link")
"""Functions whose calls few histories come to: they are crashed and hung at more often."""
MOST_STEPS = 60_000


@dataclass
class World:
    """A history under way."""

    seed: int
    crash_sites: tuple[Site, ...] = ()
    """Where programs call the file system; some histories crash at one of them."""
    focus: str = ""
    """A function at whose calls programs hang."""
    counts: Counter[str] = field(default_factory=Counter)
    crashed: set[Site] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.scenario = draw(self.rng)
        self.schedule = Schedule(self.rng, most_steps=MOST_STEPS)
        self.skew = 0
        self.host = Volume(self.server_now)
        self.outside = Volume(self.server_now)
        self.volume = Volume(
            self.server_now,
            capacity_blocks=self.scenario.blocks,
            full=self.scenario.full,
            types_known=self.rng.random() < 0.8,
            stale_when_unlinked=self.rng.random() < 0.2,
            reuse_inodes=self.rng.random() < 0.5,
            spread=self.rng.getrandbits(31),
            names_need_room=self.rng.random() < 0.5,
            has_links=self.rng.random() < 0.9,
        )
        self.cluster = Cluster(self.schedule)
        self.oracle = Oracle(self.cluster, self.volume)
        self.over = False
        self.processes: list[Process] = []
        self._pods = 0
        self.hands = Hands(self.host.root, umask=0)
        furnish(self)

    # Basics

    def server_now(self) -> int:
        """The server's clock."""
        now = EPOCH + self.schedule.now + self.skew
        return now - now % GRAIN

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def reaped(self, path: str) -> bool:
        *_, nonce, name = path.split("/")
        return (nonce, name) in self.oracle.reaped

    @property
    def policy_evicts_example(self) -> bool:
        return bool(dict(self.scenario.policy)["evictLiveEntries"])

    # Programs

    def habits(self, *, collector: bool) -> Habits:
        """Draw how a process does: some pause often, some fail often, some crash."""
        rng, calm = self.rng, self.scenario.calm
        if calm:
            return Habits()
        crash = rng.random() < 0.5
        package = "collector/" if collector else "connector/"
        sites = [site for site in self.crash_sites if site[0].startswith(package)]
        sites += [site for site in sites if site[1] in RARE] * 8
        focus = [site for site in sites if site[1] == self.focus]
        sure = len(self.crash_sites) == 1
        site = rng.choice(sites) if sites and not focus and (sure or rng.random() < 0.3) else None
        hang = rng.choice(focus or sites) if sites and not sure and (focus or rng.random() < 0.15) else None
        return Habits(
            pause_chance=rng.choice((0.0, 0.01, 0.05)),
            pause=rng.choice(((0.01, 2.0), (1.0, 120.0), (30.0, 1500.0))),
            error_chance=0.05 if site else rng.choice((0.0, 0.0, 0.01, 0.05)),
            crash_after=int(self.schedule.log_uniform(1, 800 if collector else 300)) if crash and site is None else 0,
            crash_site=site,
            hang_site=hang,
        )

    def start(
        self, kind: str, name: str, work: Callable[[Process], None], *, after: float, habits: Habits,
        ended: Callable[[], None],
    ) -> Process:  # fmt: skip
        """Start a program; `ended` is called when it crashed or died, not when the history is over."""
        process = Process(self.schedule, kind, name, self.host.root, habits)
        process.offset = self.rng.uniform(0, 1e5)
        process.crashed = lambda site: self.crashed.add(site) if site else None

        def run() -> None:
            try:
                work(process)
            except EngineDied:
                process.end()
            except Exception as error:  # a program that raises is a finding, not the end of the history
                self.oracle.check(16, False, f"{name} raised {error!r} at {where(error)}")
                process.end()
            finally:
                if not self.over and process.ended and not process.facts.get("stopped"):
                    self.count(f"{kind} ended")
                    ended()

        process.actor = self.schedule.spawn(name, run, after=after)
        self.processes.append(process)
        return process

    def stop(self, process: Process) -> None:
        """SIGKILL."""
        process.facts["stopped"] = True
        process.end()
        if process.actor:
            process.actor.killed = True

    def pod(self, epd: str, version: str, connector: str, *, after: float, seconds: float) -> None:
        """A pod with one engine; its container is started again when it ends, as long as the pod lives."""
        self._pods += 1
        uid = f"pod-{self._pods}"
        held: list[Process] = []

        def container(after: float) -> None:
            held[:] = [
                self.start(
                    "engine",
                    f"{uid}/{len(self.processes)}",
                    lambda process: self._engine(process, uid, version, connector),
                    after=after,
                    habits=self.habits(collector=False),
                    ended=lambda: container(self.rng.uniform(0.5, 60)),
                )
            ]

        def kubelet() -> None:
            self.cluster.start_pod(uid, epd, version)
            container(self.rng.uniform(0, 60))
            self.schedule.wait(seconds)
            held[0].facts["stop"] = True  # SIGTERM
            self.schedule.wait(self.rng.uniform(0, 120))
            self.stop(held[0])
            self.schedule.wait(self.rng.uniform(0, 60))
            self.cluster.remove_pod(uid)

        self.schedule.spawn(f"kubelet of {uid}", kubelet, after=after)

    def _engine(self, process: Process, uid: str, version: str, connector: str) -> None:
        if connector == "Managed":
            Managed(self, process, uid, version).run()
        else:
            self.oracle.example.add(version)
            Example(self, process, version).run()

    # A history

    def run(self) -> World:
        """Play the history to its end, let it settle, and judge what is left."""
        scenario = self.scenario
        director(self, "one", (1, 2), "Managed")
        director(self, "two", (2, 3), "Managed")
        if self.rng.random() < 0.5:
            director(self, "three", (11, 12), "Example")
        for number in range(scenario.collectors):
            collector(self, f"collector-{number}", after=self.rng.uniform(0, 600))
        if scenario.intruder:
            collector(self, "intruder", intruder=True)
        if scenario.weather:
            weather(self)
        if scenario.jumps:
            clock_jumps(self)
        if scenario.damage:
            vandal(self)
        end = int(scenario.seconds * SECOND)
        self.schedule.run(lambda: self.schedule.now >= end)
        self._silence()
        settle(self)
        return self

    def _silence(self) -> None:
        """All programs end; the API server and the volume are well."""
        self.over = True
        for process in self.processes:
            process.end()
        self.schedule.finish()
        for uid in list(self.cluster.pods):
            self.cluster.remove_pod(uid)
        self.cluster.weather = "fine"


def where(error: BaseException) -> str:
    """Return where an exception came from, within the programs."""
    found = [frame for frame in traceback.extract_tb(error.__traceback__) if "/epd/" in frame.filename]
    return f"{found[-1].filename.rpartition('/epd/')[2]}:{found[-1].lineno}" if found else "the histories"
