"""What a pass is told from outside: who lives, what is allowed, whose claim this is. Shapes only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Layout = Literal["Managed", "Example"]
"""How entries lie in a version's directory: as `epd.connector` or as vLLM's ECExampleConnector writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claim that this collector serves. `name` is `<namespace>/<name>`."""

    name: str
    uid: str
    adopts: str = ""
    """Id of a root of another claim that it may take over; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What the API says of a version; enough to write its record where its engines cannot."""

    layout: Layout
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """One answer of the API server about which versions live.

    Attributes:
        valid: Whether it may be acted on: complete, uncached, not suspiciously shrunken.
        live: Version to the EPDDeployments that name it (empty: named by something else, such as a pod).
        expedited: Versions that are dead and need no grace: their EPDDeployments are being deleted and ask for it.
        pods: Uids of all pods of the namespace.
        taken: When the first list was asked for, by the monotonic clock, in seconds.
        message: Why it is not valid; empty if it is.
        declared: Versions whose layout an EPDDeployment tells, for records that are missing.
    """

    valid: bool
    live: Mapping[str, tuple[str, ...]]
    expedited: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()
    taken: float
    message: str = ""
    declared: Mapping[str, Declaration] = field(default_factory=dict)


Ask = Callable[[], Liveness]
"""Asks the API server anew; raises nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What may be deleted: the most careful of all users of the claim. Times in seconds.

    Attributes:
        enabled: False: nothing is deleted and nothing is condemned.
        dry_run: Nothing changes but the file that tells the server's time; victims are listed.
        version_grace: From condemning a version to removing it.
        entry_ttl: Entries not used for as long go; None: age alone removes nothing.
        min_idle: Entries used within it are never evicted.
        high_percent, low_percent: Eviction begins above high and frees down to low.
        max_sizes: Versions of one EPDDeployment and the bytes they may use together.
        evict_example: Whether entries of live versions of the Example layout may be evicted.
    """

    enabled: bool
    dry_run: bool
    version_grace: float
    entry_ttl: float | None
    min_idle: float
    high_percent: int
    low_percent: int
    max_sizes: tuple[tuple[frozenset[str], int], ...] = ()
    evict_example: bool = False
