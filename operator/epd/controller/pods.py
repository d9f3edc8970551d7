"""Why a pod is not ready: from its own status and Events to one reason and one sentence that ends with the fix.

Pure. Texts that change by themselves (back-off times, restart counts, attempts) are left out: a status must not move
while nothing happens. Sources: k8s.io/kubernetes pkg/kubelet/images/types.go and pkg/kubelet/container/sync_result.go
(waiting reasons), pkg/kubelet/kubelet_pods.go and pkg/volume/secret/secret.go (Secrets),
pkg/scheduler/framework/plugins/noderesources/fit.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from epd.api.names import Reason
from epd.controller.kinds import Manifest, name_of, uid_of

_IMAGE_WAITING: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
     "RegistryUnavailable", "SignatureValidationFailed"}
)  # fmt: skip
_CONFIG_WAITING: Final = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PostStartHookError"}
)
_UNBOUND: Final = "unbound immediate PersistentVolumeClaims"
"""pkg/scheduler/framework/plugins/volumebinding: passes by itself, or `storage` tells why not."""
_MOUNT_EVENTS: Final = frozenset({"FailedMount", "FailedAttachVolume"})
_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*":? ?(ErrImagePull: )?')
_SECRET_ABSENT: Final = re.compile(r'secrets? "(?P<name>[^"]+)" not found')
_KEY_ABSENT: Final = re.compile(r"couldn't find key (?P<key>\S+) in Secret (?P<secret>\S+)")
_VOLUME_KEY_ABSENT: Final = re.compile(r'volume "(?P<volume>[^"]+)".*references non-existent secret key: (?P<key>\S+)')
_DEVICE: Final = re.compile(r"Insufficient (?P<resource>[a-z0-9.-]+/[A-Za-z0-9._-]*[A-Za-z0-9])")
_RESOURCE: Final = re.compile(r"Insufficient (?P<resource>[A-Za-z0-9./_-]+[A-Za-z0-9])")
_ERROR: Final = re.compile(r"\b[A-Za-z_.]*(?:Error|Exception): .+")
_NO_ENCODER: Final = "An EC producer-only instance requires a multimodal model."
"""vllm/config/vllm.py."""
_NOT_THE_CAUSE: Final = "Engine core initialization failed"
"""What vLLM's API server says last, whatever the cause was."""

_RANK: Final = (
    Reason.MODEL_HAS_NO_ENCODER, Reason.OOM_KILLED, Reason.CRASH_LOOP, Reason.IMAGE_PULL, Reason.SECRET_NOT_FOUND,
    Reason.SECRET_KEY_MISSING, Reason.CONFIG_ERROR, Reason.INSUFFICIENT_CAPACITY_FOR_SURGE, Reason.INSUFFICIENT_DEVICES,
    Reason.UNSCHEDULABLE,
)  # fmt: skip
"""Of several troubles the one is told whose text helps most: an engine's own words before a scheduler's."""


@dataclass(frozen=True)
class Trouble:
    """A reason (of `names.Reason`) and a sentence for people."""

    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What the words need to know of the Deployment: the field of the spec, its container, whether it surges now, and
    whether the field has a `rollingUpdate` that says how."""

    field: str
    container: str
    surging: bool = False
    tunable: bool = True


def ready(pod: Manifest) -> bool:
    """Whether the pod serves: Ready and not being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions") or ())


def has_port(pod: Manifest, name: str) -> bool:
    """Whether a container of the pod has a port of this name; a Service that targets it by name needs one."""
    return any(port.get("name") == name for c in pod["spec"].get("containers") or () for port in c.get("ports") or ())


def worst(pods: Iterable[Manifest], workload: Workload, events: Iterable[Manifest] = ()) -> Trouble | None:
    """The trouble most worth telling among pods that are not ready; None if all are just starting."""
    events = tuple(events)
    troubles = [
        trouble
        for pod in sorted(pods, key=name_of)
        if not ready(pod) and (trouble := explain(pod, workload, events)) is not None
    ]
    # `min` keeps the first of equals: the same pod is named each time.
    return min(troubles, key=lambda trouble: _RANK.index(trouble.reason), default=None)


def explain(pod: Manifest, workload: Workload, events: Iterable[Manifest] = ()) -> Trouble | None:
    """Why this pod is not ready; None if nothing is wrong that it would say."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return None
    if (words := _unschedulable(status)) is not None and _UNBOUND not in words:
        return _no_place(name_of(pod), words, workload)
    for container in (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or []):
        if (trouble := _container(name_of(pod), container, workload)) is not None:
            return trouble
    return _mount(pod, events)


def stuck_creating(pod: Manifest) -> bool:
    """Whether only Events can say why the pod does not start: it has a node, and a container that is being created."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return any((c.get("state") or {}).get("waiting", {}).get("reason") == "ContainerCreating" for c in containers)


def last_words(message: str) -> str:
    """The line of a termination message that names the cause: the last exception that is one, else the last line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    # From the exception's name on: prefixes hold process ids and times, which differ at each restart.
    errors = [m.group() for line in lines if (m := _ERROR.search(line)) and _NOT_THE_CAUSE not in line]
    return (errors or lines or [""])[-1]


def _unschedulable(status: dict[str, Any]) -> str | None:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            # What follows is about preempting others, and changes from attempt to attempt.
            return str(condition.get("message", "")).split(" preemption:")[0].strip()
    return None


def _no_place(pod: str, words: str, workload: Workload) -> Trouble:
    short = _RESOURCE.search(words)
    if workload.surging and short is not None:
        fix = (
            f"Free one, or set spec.{workload.field}.rollingUpdate: {{maxSurge: 0, maxUnavailable: 1}}."
            if workload.tunable
            else f"Make room on a node, or lower spec.{workload.field}.resources.requests."
        )
        return Trouble(
            Reason.INSUFFICIENT_CAPACITY_FOR_SURGE,
            f"pod {pod} is Pending: Insufficient {short['resource']} for one more pod than before ({words}) {fix}",
        )
    if (device := _DEVICE.search(words)) is not None:
        return Trouble(
            Reason.INSUFFICIENT_DEVICES,
            f"pod {pod} is Pending: Insufficient {device['resource']} ({words}) Free a device, add a node that has "
            f"one, or lower spec.{workload.field}.replicas.",
        )
    return Trouble(Reason.UNSCHEDULABLE, f"pod {pod} is Pending: {words}")


def _container(pod: str, status: dict[str, Any], workload: Workload) -> Trouble | None:
    waiting = (status.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") in _IMAGE_WAITING:
        words = _BACK_OFF.sub("", waiting.get("message") or "").strip()
        return Trouble(
            Reason.IMAGE_PULL,
            f"pod {pod} cannot pull image {status.get('image', '')}{f': {words}' if words else ''}. "
            "Check the image's name and spec.imagePullSecrets.",
        )
    if waiting.get("reason") in _CONFIG_WAITING:
        return _config(pod, str(waiting.get("message", waiting["reason"])))
    ended = (status.get("state") or {}).get("terminated") or (status.get("lastState") or {}).get("terminated")
    if ended is None or status.get("ready") or ended.get("reason") == "Completed":
        return None
    return _ended(pod, status, ended, workload)


def _config(pod: str, words: str) -> Trouble:
    if (absent := _SECRET_ABSENT.search(words)) is not None:
        return Trouble(Reason.SECRET_NOT_FOUND, f"pod {pod}: {words}. Create Secret {absent['name']} in its namespace.")
    if (key := _KEY_ABSENT.search(words)) is not None:
        return Trouble(
            Reason.SECRET_KEY_MISSING, f"pod {pod}: {words}. Add the key {key['key']} to Secret {key['secret']}."
        )
    return Trouble(Reason.CONFIG_ERROR, f"pod {pod}: {words}")


def _ended(pod: str, status: dict[str, Any], ended: dict[str, Any], workload: Workload) -> Trouble:
    said = last_words(str(ended.get("message") or ""))
    if _NO_ENCODER in str(ended.get("message") or ""):
        return Trouble(
            Reason.MODEL_HAS_NO_ENCODER,
            f'engine said "{_NO_ENCODER}" Remove spec.encode, or name a multimodal model in spec.model.name.',
        )
    if ended.get("reason") == "OOMKilled":
        return Trouble(
            Reason.OOM_KILLED,
            f"container {status['name']} of pod {pod} ran out of memory. Raise "
            f"spec.{workload.field}.resources.limits.memory.",
        )
    quote = f', and said last: "{said}"' if said else f"; see kubectl logs {pod} -c {status['name']} --previous"
    return Trouble(
        Reason.CRASH_LOOP,
        f"container {status['name']} of pod {pod} ended with exit code {ended.get('exitCode', '?')}{quote}",
    )


def _mount(pod: Manifest, events: Iterable[Manifest]) -> Trouble | None:
    mine = [
        event
        for event in events
        if event["involvedObject"].get("uid") == uid_of(pod) and event.get("reason") in _MOUNT_EVENTS
    ]
    if not mine or not stuck_creating(pod):
        return None
    latest = max(mine, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    words = str(latest.get("message", ""))
    if (absent := _VOLUME_KEY_ABSENT.search(words)) is not None:
        return _volume_key(pod, absent["volume"], absent["key"])
    return _config(name_of(pod), words)


def _volume_key(pod: Manifest, volume: str, key: str) -> Trouble:
    """The kubelet says which volume lacks a key, not which Secret that is."""
    secrets = {v["name"]: v["secret"]["secretName"] for v in pod["spec"].get("volumes") or () if v.get("secret")}
    secret = secrets.get(volume, f"of volume {volume}")
    return Trouble(
        Reason.SECRET_KEY_MISSING, f"pod {name_of(pod)}: Secret {secret} has no key {key}. Add the key to it."
    )
