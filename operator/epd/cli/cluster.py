"""Reads one EPDDeployment from the cluster of the current context, through kubectl. Changes nothing there."""

from __future__ import annotations

import json
import subprocess
from typing import Final

from pydantic import ValidationError

from epd.api import names
from epd.api.types import EPDDeployment
from epd.cli.documents import lines

_RESOURCE: Final = f"{names.PLURAL}.{names.GROUP}"


class ClusterError(Exception):
    """The object can't be had; the message says why, for a person."""


def get(name: str, *, namespace: str | None = None) -> EPDDeployment:
    """Return an object as kubectl finds it: its kubeconfig, its context, and unless given its namespace.

    Raises:
        ClusterError: kubectl is not there or has no such object, or the object is of no version known here.
    """
    command = ["kubectl", "get", _RESOURCE, name, "--output=json"]
    command += [f"--namespace={namespace}"] if namespace else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 (no shell)
        return EPDDeployment.model_validate(json.loads(done.stdout))
    except FileNotFoundError:
        raise ClusterError("kubectl is not on the PATH") from None
    except subprocess.CalledProcessError as error:
        raise ClusterError(error.stderr.strip().removeprefix("error: ")) from None
    except ValidationError as error:
        raise ClusterError("\n".join(f"{name}: {line}" for line in lines(error))) from None
    except ValueError as error:
        raise ClusterError(f"kubectl's answer is no JSON: {error}") from None
