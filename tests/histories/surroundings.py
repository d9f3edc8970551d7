"""The world around the programs of a history: people and their EPDDeployments, weather, and a clock that is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from histories.schedule import SECOND

if TYPE_CHECKING:
    from histories.world import World


def director(world: World, name: str, salts: tuple[int, ...], connector: str) -> None:
    """One EPDDeployment: comes, rolls out other versions, goes, and comes back."""
    rng, cluster, scenario = world.rng, world.cluster, world.scenario

    def live() -> None:
        world.schedule.wait(rng.uniform(0, 300))
        while True:
            version = cluster.apply(name, rng.choice(salts), connector, scenario.policy)
            cluster.scale(name, version, 1)
            stay = world.schedule.log_uniform(60, scenario.seconds)
            for _ in range(rng.choice((1, 1, 2))):
                world.pod(name, version, connector, after=rng.uniform(0, 30), seconds=stay * rng.uniform(0.5, 3))
            world.schedule.wait(rng.uniform(0, stay))
            cluster.rolled(name)
            world.schedule.wait(stay)
            if rng.random() < 0.4:
                cluster.delete(name)
                cluster.scale(name, version, 0)
                world.schedule.wait(rng.uniform(1, 900))
                cluster.finalized(name)
                world.schedule.wait(world.schedule.log_uniform(10, 3000))

    world.schedule.spawn(f"director of {name}", live)


def weather(world: World) -> None:
    """The API server has its bad times. It lies once, and for less than any grace."""
    rng, cluster = world.rng, world.cluster

    def change() -> None:
        lied = False
        while True:
            world.schedule.wait(rng.uniform(60, 1500))
            weather = rng.choice(("down", "flaky", "slow", "empty", "partial"))
            if weather in ("empty", "partial"):
                if lied:
                    continue
                lied = True
            cluster.weather = weather
            world.schedule.wait(rng.uniform(10, 500))
            cluster.weather = "fine"

    world.schedule.spawn("weather", change)


def clock_jumps(world: World) -> None:
    """The server's clock is set, by up to 5 minutes."""

    def jump() -> None:
        for _ in range(world.scenario.jumps):
            world.schedule.wait(world.rng.uniform(0, world.scenario.seconds / world.scenario.jumps))
            step = int(world.rng.uniform(-300, 300) * SECOND)
            world.skew += step
            world.oracle.jumps += abs(step)

    world.schedule.spawn("server's clock", jump)
