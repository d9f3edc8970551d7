"""What is asked of every stack. A row is a shape of request, a number of connections, and who takes part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PICTURE_1KB: Final = 1024
PICTURE_1MB: Final = 1_000_000
"""Characters of base64."""
MARGIN_SECONDS: Final = 75
"""What a run may take beyond its limit: the warm-up, and requests under way (a lost one counts after 25 s)."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One row. `requests` and `seconds` bound a run, whichever ends first; `pace` is in milliseconds between chunks."""

    name: str
    connections: int
    requests: int
    seconds: float = 1.5
    pictures: int = 0
    picture_size: int = PICTURE_1KB
    chunks: int = 0
    """Content chunks of a streamed answer; 0: one JSON document."""
    pace: float = 0
    held: bool = False
    """Engines keep every request for 0.3 s, so that all are under way at once."""
    compared: bool = False
    """Every other request goes past the stack, straight to the engine: what the stack adds to the latency."""
    three_legs: bool = False
    """Separate prefill and decode engines."""

    def arguments(self) -> list[str]:
        """Flags of the loader."""
        flags = ["-c", str(self.connections), "-n", str(self.requests), "-d", f"{self.seconds}s"]
        flags += ["-items", str(self.pictures), "-size", str(self.picture_size)]
        if self.chunks:
            flags += ["-stream", "-chunks", str(self.chunks), "-pace", str(int(self.pace * 1000))]
        return flags + ["-hold"] * self.held


SCENARIOS: Final = (
    Scenario(name="text c1", connections=1, requests=1500),
    Scenario(name="text c16", connections=16, requests=4000),
    Scenario(name="text c64", connections=64, requests=4000),
    Scenario(name="text c256", connections=256, requests=6000, seconds=2.5),
    Scenario(name="1 KB picture c1", connections=1, requests=800, pictures=1),
    Scenario(name="1 KB picture c64", connections=64, requests=3000, pictures=1),
    Scenario(name="1 MB picture c1", connections=1, requests=150, pictures=1, picture_size=PICTURE_1MB),
    Scenario(name="1 MB picture c16", connections=16, requests=250, pictures=1, picture_size=PICTURE_1MB),
    Scenario(name="stream c64", connections=64, requests=600, chunks=100),
    Scenario(name="paced stream c64", connections=64, requests=64, seconds=8, chunks=100, pace=10),
    Scenario(name="8 pictures and a stream c16", connections=16, requests=400, pictures=8, chunks=100),
    Scenario(name="added to text c1", connections=1, requests=700, compared=True),
    Scenario(name="added to 1 KB picture c1", connections=1, requests=500, pictures=1, compared=True),
    Scenario(
        name="64 x 1 MB under way",
        connections=64,
        requests=192,
        seconds=8,
        pictures=1,
        picture_size=PICTURE_1MB,
        held=True,
    ),
    Scenario(name="E|P|D 1 KB picture c16", connections=16, requests=1000, pictures=1, three_legs=True),
)
