"""Whose root this is. One that another claim owns is left alone in every way, unless a person lets this claim adopt it.

Two claims can lie on one export; each namespace knows only its own versions, and would see the other's as dead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from epd.api.names import ANNOTATION_ADOPT_ROOT
from epd.collector import documents
from epd.collector.files import Files
from epd.collector.inputs import Claim
from epd.connector import layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """What `owner.json` says. `claim` and `former` are `<namespace>/<name>`; records that name them are ours."""

    root_id: str
    claim_uid: str
    claim: str
    former: tuple[str, ...] = ()
    created: str = ""

    def encode(self) -> dict[str, Any]:
        """Return the file's content."""
        return {
            "format": layout.FORMAT,
            "rootId": self.root_id,
            "claimUid": self.claim_uid,
            "claim": self.claim,
            "former": list(self.former),
            "created": self.created,
        }

    @property
    def names(self) -> frozenset[str]:
        """All claims whose records are this owner's."""
        return frozenset((self.claim, *self.former))


def parse(content: Mapping[str, Any] | None) -> Owner | None:
    """Return the owner; None for a file that is damaged or of a newer format: then nobody is the owner."""
    if content is None or content.get("format") != layout.FORMAT:
        return None
    former = content.get("former", [])
    texts = [content.get(key) for key in ("rootId", "claimUid", "claim")]
    if not all(isinstance(text, str) and text for text in texts) or not isinstance(former, list):
        return None
    return Owner(
        root_id=str(texts[0]),
        claim_uid=str(texts[1]),
        claim=str(texts[2]),
        former=tuple(name for name in former if isinstance(name, str)),
        created=str(content.get("created", "")),
    )


def adopted(owner: Owner, claim: Claim, root_id: str) -> Owner:
    """Return the owner after `claim` took the root over; what the old claim wrote becomes ours.

    The root gets a new id, so that an annotation counts once: of two claims that adopted one root, each would take it
    from the other again and again, and see the other's versions as dead.
    """
    former = tuple(dict.fromkeys((*owner.former, owner.claim)))
    return Owner(root_id=root_id, claim_uid=claim.uid, claim=claim.name, former=former, created=owner.created)


def settle(
    files: Files, housekeeping: int, claim: Claim, *, nonce: Callable[[], str], now: float, dry_run: bool
) -> tuple[Owner | None, str]:
    """Return this claim as the owner, or None and why not. Writes the file if there is none or adoption is allowed.

    `now` only dates the file. Raises OSError.
    """
    try:
        content = documents.read(files, layout.OWNER, dir_fd=housekeeping)
    except FileNotFoundError:
        root_id = "" if dry_run else nonce()
        mine = Owner(root_id=root_id, claim_uid=claim.uid, claim=claim.name, created=documents.timestamp(now))
        if dry_run or documents.publish(files, layout.OWNER, mine.encode(), dir_fd=housekeeping, nonce=nonce):
            return mine, ""
        content = documents.read(files, layout.OWNER, dir_fd=housekeeping)
    owner = parse(content)
    if owner is None:
        return None, f"{layout.HOUSEKEEPING}/{layout.OWNER} cannot be read, so nobody is known to own the root"
    if owner.claim_uid == claim.uid:
        return owner, ""
    if not owner.root_id or owner.root_id != claim.adopts:
        return None, (
            f"root {owner.root_id} is owned by claim {owner.claim} (uid {owner.claim_uid}). Give each claim a "
            f"directory of its own; if that claim is gone or never comes back here, adopt the root: kubectl "
            f"annotate pvc {claim.name.rpartition('/')[2]} {ANNOTATION_ADOPT_ROOT}={owner.root_id}"
        )
    owner = adopted(owner, claim, owner.root_id if dry_run else nonce())
    if not dry_run:
        documents.publish(files, layout.OWNER, owner.encode(), dir_fd=housekeeping, nonce=nonce, replace=True)
    return owner, ""
