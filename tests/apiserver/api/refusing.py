"""What the API server says to an object that it does not take."""

from __future__ import annotations

import re
from typing import Any

from apiserver.api.objects import changed
from apiserver.server import Namespace


def refused(namespace: Namespace, changes: dict[str, Any]) -> str:
    """The message of the refusal, without values.

    The API server puts `Invalid value: <the value>: ` between path and message; the tables leave it out.
    """
    answer = namespace.create(changed(changes), dry_run=True)
    assert answer.status_code in (400, 422), answer.text
    return re.sub(r'Invalid value: ("(?:[^"\\]|\\.)*": )?', "", answer.json()["message"])
