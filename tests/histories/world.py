"""One history: a volume, a cluster, engines, collectors and everything that can go wrong, all drawn from one seed."""

from __future__ import annotations

import errno
import json
import os
import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from epd.collector.asking import Asker
from epd.collector.collection import Collection
from epd.collector.inputs import Liveness
from epd.collector.policy import NOTHING
from epd.collector.result import PassResult
from epd.collector.seen import Root
from epd.connector import layout
from histories.cluster import CLAIM, FOREIGN_VERSIONS, NAMESPACE, Api, Cluster, version_of
from histories.engines import IDENTIFIERS, ROOT, EngineDied, Example, Managed
from histories.memory_fs import Files
from histories.memory_tree import Inode, Volume, everything
from histories.oracle import Oracle
from histories.process import Habits, Process, Site
from histories.schedule import SECOND, Schedule
from histories.settle import settle

EPOCH = 1_795_000_000 * SECOND
GRAIN = 4_000_000
"""ns; of the time stamps of Linux's file systems at 250 Hz."""
RARE = ("Versions._condemn_with_spare", "Versions._rename", "Sweep._remove_old", "Eviction._look", "_link")
"""Functions whose calls few histories come to: they are crashed and hung at more often."""
MOST_STEPS = 60_000


def _policy(rng: random.Random) -> tuple[tuple[str, Any], ...]:
    high, low = rng.choice(((85, 70), (50, 30), (20, 5)))
    drawn: dict[str, Any] = {
        "minIdle": rng.choice(("4m", "15m")),
        "versionGracePeriod": rng.choice(("10m", "25m")),
        "highWatermarkPercent": high,
        "lowWatermarkPercent": low,
        "evictLiveEntries": rng.random() < 0.2,
    }
    if rng.random() < 0.3:
        drawn["entryTTL"] = "40m"
    if rng.random() < 0.3:
        drawn["maxSize"] = "64Ki"
    if rng.random() < 0.04:
        drawn["dryRun"] = True
    if rng.random() < 0.03:
        drawn["enabled"] = False
    return tuple(sorted(drawn.items()))


@dataclass(kw_only=True)
class Scenario:
    """What a seed draws before anything happens."""

    seconds: float
    policy: tuple[tuple[str, Any], ...]
    collectors: int
    intruder: bool
    identifiers: int
    engine_pace: tuple[float, float]
    pass_pace: tuple[float, float]
    blocks: int
    full: int
    foreign: bool
    hostile: bool
    damage: bool
    jumps: int
    weather: bool
    adopts: bool
    """The root was another claim's, and a person lets this one adopt it."""
    calm: bool
    """No pauses, errors or crashes: what is wrong here is wrong without bad luck."""

    @property
    def min_idle(self) -> float:
        return 240.0 if dict(self.policy)["minIdle"] == "4m" else 900.0


def draw(rng: random.Random) -> Scenario:
    hostile = rng.random() < 0.15
    return Scenario(
        seconds=rng.choice((600.0, 900.0, 1200.0, 2400.0, 3600.0)),
        policy=_policy(rng),
        collectors=rng.choice((1, 2, 2, 2, 3)),
        intruder=rng.random() < 0.1,
        identifiers=rng.choice((3, 6, len(IDENTIFIERS))),
        engine_pace=rng.choice(((5.0, 600.0), (0.05, 300.0), (60.0, 1200.0))),
        pass_pace=rng.choice(((120.0, 1500.0), (120.0, 1500.0), (20.0, 900.0), (300.0, 1500.0))),
        blocks=rng.choice((24, 60, 400)),
        full=rng.choice((errno.ENOSPC, errno.EDQUOT)),
        foreign=rng.random() < 0.5,
        hostile=hostile,
        damage=hostile or rng.random() < 0.1,
        jumps=rng.choice((0, 0, 1, 3)),
        weather=rng.random() < 0.5,
        adopts=rng.random() < 0.08,
        calm=rng.random() < 0.15,
    )


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
        self.settler: Process | None = None
        self._pods = 0
        self._furnish()

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

    def _furnish(self) -> None:
        """Mount the volumes and put on them what is there before the first program starts."""
        self.hands = files = Files(self.host.root, umask=0)
        for path, volume in ((ROOT, self.volume), ("/outside", self.outside)):
            files.mkdir(path)
            files.mount(path, volume.root)
        for path in ("/outside/secret", "/outside/data"):
            files.mkdir(path)
            self._file(f"{path}/{layout.EXAMPLE_ENTRY}", b"not to be touched")
        for identifier in IDENTIFIERS:
            shard, name = layout.entry_name(identifier)
            self._make(f"/outside/data/{shard}")
            self._file(f"/outside/data/{shard}/{name}")
            self._file(f"/outside/data/{name}")
        if self.scenario.adopts:
            self.cluster.adopts = "root-1"
        if self.scenario.intruder or self.scenario.adopts or self.rng.random() < 0.8:
            self._claim_root()
        if self.scenario.foreign:
            self._strangers()
        for _, inode in everything(self.outside.root):
            self.oracle.foreign[inode] = "outside of the root"

    def _file(self, path: str, data: bytes = b"x") -> Inode:
        fd = self.hands.open(path, os.O_CREAT | os.O_WRONLY, 0o660)
        try:
            self.hands.write(fd, data)
            return self.hands.inode_of(fd)
        finally:
            self.hands.close(fd)

    def _make(self, path: str) -> None:
        """As mkdir -p."""
        parts = path.strip("/").split("/")
        for length in range(1, len(parts) + 1):
            try:
                self.hands.mkdir("/" + "/".join(parts[:length]), layout.DIRECTORY_MODE)
            except FileExistsError:
                continue

    def _claim_root(self) -> None:
        self._make(f"{ROOT}/{layout.HOUSEKEEPING}")
        owner = {"format": 1, "rootId": "root-1", "claimUid": "claim-1", "claim": f"{NAMESPACE}/{CLAIM}", "former": []}
        if self.scenario.adopts:
            owner |= {"claimUid": "claim-0", "claim": f"{NAMESPACE}/old"}
        self._file(f"{ROOT}/{layout.HOUSEKEEPING}/{layout.OWNER}", json.dumps(owner | {"created": ""}).encode())
        left = f"{ROOT}/{layout.HOUSEKEEPING}/{layout.TEMPORARY_PREFIX}left-over"
        self._file(left)
        self.hands.utime(left, ns=(EPOCH - 7200 * SECOND, EPOCH - 7200 * SECOND))

    def _record(self, version: str, claim: str) -> None:
        self._make(f"{ROOT}/{layout.HOUSEKEEPING}/{layout.VERSIONS}")
        record = {"format": 1, "version": version, "claim": claim, "layout": "Managed", "inputs": {}, "created": ""}
        self._file(
            f"{ROOT}/{layout.HOUSEKEEPING}/{layout.VERSIONS}/{layout.record_name(version)}",
            json.dumps(record).encode() + b"\n",
        )

    def _strangers(self) -> None:
        """What is not ours, in all places where it may lie."""
        stranger, theirs, linked, mounted = FOREIGN_VERSIONS
        for version in (stranger, theirs, mounted):
            self._make(f"{ROOT}/{version}/ab")
        mount = Volume(self.server_now)
        self.hands.mount(f"{ROOT}/{mounted}", mount.root)
        self._make(f"{ROOT}/{mounted}/ab")
        self._make(f"{ROOT}/models/deep")
        self._make(f"{ROOT}/{layout.HOUSEKEEPING}/{layout.TRASH}/lost+found")
        entry = f"ab/{'ab' * 32}{layout.ENTRY_SUFFIX}"
        for path in (
            f"{stranger}/{entry}",
            f"{theirs}/{entry}",
            f"{mounted}/{entry}",
            "models/deep/weights",
            f"{layout.HOUSEKEEPING}/{layout.TRASH}/lost+found/{layout.EXAMPLE_ENTRY}",
            "README",
        ):
            self._file(f"{ROOT}/{path}")
        self.hands.symlink("/outside/data", f"{ROOT}/{linked}")
        self._record(theirs, "other/cache")
        for version in (linked, mounted):
            self._record(version, f"{NAMESPACE}/{CLAIM}")
            self.oracle.ours.add(version)
        for _, inode in everything(mount.root):
            self.oracle.foreign[inode] = "on another mount"
        house = (self.volume.root.children or {})[layout.HOUSEKEEPING]
        for path, inode in everything(self.volume.root):
            if layout.HOUSEKEEPING not in path:
                self.oracle.foreign[inode] = f"foreign: {path}"
        for path, inode in everything(house):
            if "lost+found" in path:
                self.oracle.foreign[inode] = f"foreign: {path}"

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

    def collector(self, name: str, *, intruder: bool = False, after: float = 0.0) -> None:
        """A collector that is started again when it crashes."""
        self.start(
            "collector",
            name,
            lambda process: self._collect(process, intruder),
            after=after,
            habits=self.habits(collector=True),
            ended=lambda: self.collector(name, intruder=intruder, after=self.rng.uniform(1, 600)),
        )

    def _collect(self, process: Process, intruder: bool) -> None:
        passes = self.passes(process, intruder=intruder)
        while True:
            process.sleep(self.schedule.log_uniform(*self.scenario.pass_pace))
            result = passes()
            again = 0
            while result is not None and result.more and again < 3:
                result, again = passes(), again + 1

    def passes(self, process: Process, *, intruder: bool = False) -> Callable[[], PassResult | None]:
        """Return what makes one pass, as the collector's loop does it."""
        cluster = self.other_cluster if intruder else self.cluster
        process.facts["policy"] = NOTHING
        process.files.witness = self.intruded(process) if intruder else self.oracle.witness(process)
        asker = Asker(Api(cluster), namespace=NAMESPACE, root=Root(claim=CLAIM), clock=process.clock)

        def ask() -> Liveness:
            start, lies = self.schedule.now, cluster.lies
            answer = asker()
            lying = cluster.weather if cluster.lies > lies else ""
            process.facts["answer"] = (start, self.schedule.now, answer, lying)
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
            self.oracle.check(17, open_now == 0, f"{process.name} leaves {open_now} files open after a pass")
            self.count("passes")
            for (call, error), number in result.errors.items():
                self.counts[f"error: {call} {error}"] += number
            return result

        return one_pass

    def intruded(self, process: Process) -> Callable[[Files, str, Inode | None, str, Inode], None]:
        """The witness of a collector of another claim on the same root: it may change nothing."""

        def tell(files: Files, operation: str, parent: Inode | None, name: str, inode: Inode) -> None:
            if operation not in ("stat", "look"):
                self.oracle.check(2, False, f"{process.name} of another claim {operation} {name!r}")

        return tell

    @property
    def other_cluster(self) -> Cluster:
        """The namespace of another claim: it knows none of our versions."""
        cluster = Cluster(self.schedule, claim_uid="claim-2")
        cluster.apply("theirs", 99, "Managed", self.scenario.policy)
        return cluster

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

    # The world around

    def director(self, name: str, salts: tuple[int, ...], connector: str) -> None:
        """One EPDDeployment: comes, rolls out other versions, goes, and comes back."""
        rng, cluster, scenario = self.rng, self.cluster, self.scenario

        def live() -> None:
            self.schedule.wait(rng.uniform(0, 300))
            while True:
                version = cluster.apply(name, rng.choice(salts), connector, scenario.policy)
                cluster.scale(name, version, 1)
                stay = self.schedule.log_uniform(60, scenario.seconds)
                for _ in range(rng.choice((1, 1, 2))):
                    self.pod(name, version, connector, after=rng.uniform(0, 30), seconds=stay * rng.uniform(0.5, 3))
                self.schedule.wait(rng.uniform(0, stay))
                cluster.rolled(name)
                self.schedule.wait(stay)
                if rng.random() < 0.4:
                    cluster.delete(name)
                    cluster.scale(name, version, 0)
                    self.schedule.wait(rng.uniform(1, 900))
                    cluster.finalized(name)
                    self.schedule.wait(self.schedule.log_uniform(10, 3000))

        self.schedule.spawn(f"director of {name}", live)

    def weather(self) -> None:
        """The API server has its bad times. It lies once, and for less than any grace."""
        rng, cluster = self.rng, self.cluster

        def change() -> None:
            lied = False
            while True:
                self.schedule.wait(rng.uniform(60, 1500))
                weather = rng.choice(("down", "flaky", "slow", "empty", "partial"))
                if weather in ("empty", "partial"):
                    if lied:
                        continue
                    lied = True
                cluster.weather = weather
                self.schedule.wait(rng.uniform(10, 500))
                cluster.weather = "fine"

        self.schedule.spawn("weather", change)

    def clock_jumps(self) -> None:
        """The server's clock is set, by up to 5 minutes."""

        def jump() -> None:
            for _ in range(self.scenario.jumps):
                self.schedule.wait(self.rng.uniform(0, self.scenario.seconds / self.scenario.jumps))
                step = int(self.rng.uniform(-300, 300) * SECOND)
                self.skew += step
                self.oracle.jumps += abs(step)

        self.schedule.spawn("server's clock", jump)

    def vandal(self) -> None:
        """Somebody with write access: puts links, files and directories where entries are, and damages entries."""

        def ravage() -> None:
            while True:
                self.schedule.wait(self.schedule.log_uniform(5, 900))
                versions = sorted(self.oracle.ours - set(FOREIGN_VERSIONS))
                if versions:
                    self._ravage(self.rng.choice(versions))

        self.schedule.spawn("vandal", ravage)

    def _ravage(self, version: str) -> None:
        rng, files = self.rng, self.hands
        shard, name = layout.entry_name(rng.choice(IDENTIFIERS))
        directory = f"{ROOT}/{version}/{shard}"
        if rng.random() < 0.1:
            directory, name = f"{ROOT}/{layout.HOUSEKEEPING}/{layout.VERSIONS}", layout.record_name(version)
        try:
            if self.scenario.hostile and rng.random() < 0.5 and layout.HOUSEKEEPING not in directory:
                choice = rng.randrange(4)
                if choice == 0:
                    moved = f"{ROOT}/moved-{rng.getrandbits(32)}"
                    files.rename(directory, moved)
                    self._foreign(moved)
                    files.symlink(rng.choice(("/outside/data", moved)), directory)
                    self._foreign(directory)
                elif choice == 1:
                    files.symlink("/outside/secret/encoder_cache.safetensors", f"{directory}/{name}")
                    self._foreign(f"{directory}/{name}")
                elif choice == 2:
                    self._make(f"{directory}/{name}")
                    self._file(f"{directory}/{name}/inner")
                    self._foreign(f"{directory}/{name}")
                else:
                    self._file(f"{directory}/notes-{rng.getrandbits(16)}.txt")
                    self.oracle.foreign[self._file(f"{ROOT}/{version}/notes.txt")] = "a note"
                return
            fd = files.open(f"{directory}/{name}", os.O_RDWR)
            try:
                if rng.random() < 0.5:
                    files.ftruncate(fd, rng.randrange(2000))
                else:
                    files.pwrite(fd, b"damage", rng.randrange(3000))
            finally:
                files.close(fd)
        except OSError:
            return

    def _foreign(self, path: str) -> None:
        _, _, inode = self.hands.find(path)
        if inode is not None:
            self.oracle.foreign[inode] = f"foreign: {path}"
            if inode.children is not None:
                for below, child in everything(inode):
                    if child.is_directory or child.nlink == 1:  # else it is also a pin
                        self.oracle.foreign[child] = f"foreign: {path}{below}"

    # A history

    def run(self) -> World:
        """Play the history to its end, let it settle, and judge what is left."""
        scenario = self.scenario
        self.director("one", (1, 2), "Managed")
        self.director("two", (2, 3), "Managed")
        if self.rng.random() < 0.5:
            self.director("three", (11, 12), "Example")
        for number in range(scenario.collectors):
            self.collector(f"collector-{number}", after=self.rng.uniform(0, 600))
        if scenario.intruder:
            self.collector("intruder", intruder=True)
        if scenario.weather:
            self.weather()
        if scenario.jumps:
            self.clock_jumps()
        if scenario.damage:
            self.vandal()
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


VERSIONS = tuple(version_of(salt, "Managed") for salt in (1, 2, 3)) + tuple(version_of(s, "Example") for s in (11, 12))


def where(error: BaseException) -> str:
    """Return where an exception came from, within the programs."""
    found = [frame for frame in traceback.extract_tb(error.__traceback__) if "/epd/" in frame.filename]
    return f"{found[-1].filename.rpartition('/epd/')[2]}:{found[-1].lineno}" if found else "the histories"
