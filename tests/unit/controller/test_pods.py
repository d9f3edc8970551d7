from __future__ import annotations

from typing import Any

import pytest

from epd.controller.pods import Trouble, Workload, explain, last_words, ready, worst
from unit.controller import objects

ENCODE = Workload(field="encode", container="engine")
SURGING = Workload(field="encode", container="engine", surging=True)
NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are available: 1 No victims."
SHORT = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."

CASES: list[tuple[str, dict[str, Any], Workload, Trouble | None]] = [
    ("starting", objects.waiting("ContainerCreating"), ENCODE, None),
    ("loading", objects.pod(containerStatuses=[{"name": "engine", "state": {"running": {}}}]), ENCODE, None),
    (
        "image",
        objects.waiting("ErrImagePull", "not found"),
        ENCODE,
        Trouble(
            "ImagePull",
            "pod qwen-encode-1 cannot pull image engine:1: not found. "
            "Check the image's name and spec.imagePullSecrets.",
        ),
    ),
    (
        "image, backing off",
        objects.waiting("ImagePullBackOff", 'Back-off pulling image "engine:1": ErrImagePull: not found'),
        ENCODE,
        Trouble(
            "ImagePull",
            "pod qwen-encode-1 cannot pull image engine:1: not found. "
            "Check the image's name and spec.imagePullSecrets.",
        ),
    ),
    (
        "secret",
        objects.waiting("CreateContainerConfigError", 'secret "hf" not found'),
        ENCODE,
        Trouble(
            "SecretNotFound", 'pod qwen-encode-1: secret "hf" not found. Create Secret hf in its namespace.'
        ),
    ),
    (
        "secret's key",
        objects.waiting("CreateContainerConfigError", "couldn't find key token in Secret ai/hf"),
        ENCODE,
        Trouble(
            "SecretKeyMissing",
            "pod qwen-encode-1: couldn't find key token in Secret ai/hf. Add the key token to Secret ai/hf.",
        ),
    ),
    (
        "no device",
        objects.unschedulable(NO_GPU),
        ENCODE,
        Trouble(
            "InsufficientDevices",
            f"pod qwen-encode-1 is Pending: Insufficient nvidia.com/gpu ({SHORT}) Free a device, add a node that has "
            "one, or lower spec.encode.replicas.",
        ),
    ),
    (
        "no device for the surge",
        objects.unschedulable(NO_GPU),
        SURGING,
        Trouble(
            "InsufficientCapacityForSurge",
            f"pod qwen-encode-1 is Pending: Insufficient nvidia.com/gpu for one more pod than before ({SHORT}) Free "
            "one, or set spec.encode.rollingUpdate: {maxSurge: 0, maxUnavailable: 1}.",
        ),
    ),
    (
        "no memory for the surge",
        objects.unschedulable("0/1 nodes are available: 1 Insufficient memory."),
        SURGING,
        Trouble(
            "InsufficientCapacityForSurge",
            "pod qwen-encode-1 is Pending: Insufficient memory for one more pod than before (0/1 nodes are available: "
            "1 Insufficient memory.) Free one, or set spec.encode.rollingUpdate: {maxSurge: 0, maxUnavailable: 1}.",
        ),
    ),
    (
        "taint",
        objects.unschedulable("0/1 nodes are available: 1 node(s) had untolerated taint."),
        ENCODE,
        Trouble(
            "Unschedulable",
            "pod qwen-encode-1 is Pending: 0/1 nodes are available: 1 node(s) had untolerated taint.",
        ),
    ),
    (
        "claim not bound yet",
        objects.unschedulable("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
        ENCODE,
        None,
    ),
    (
        "out of memory",
        objects.ended(reason="OOMKilled", code=137),
        ENCODE,
        Trouble(
            "OOMKilled",
            "container engine of pod qwen-encode-1 ran out of memory. Raise spec.encode.resources.limits.memory.",
        ),
    ),
    (
        "crash",
        objects.ended("(EngineCore pid=7) ERROR 11-29 17:00 [core.py:1] ValueError: no such model\n"
                      "RuntimeError: Engine core initialization failed. See root cause above."),
        ENCODE,
        Trouble(
            "CrashLoop",
            'container engine of pod qwen-encode-1 ended with exit code 1, and said last: "ValueError: no such model"',
        ),
    ),
    (
        "crash without words, waiting",
        objects.ended(now="waiting"),
        ENCODE,
        Trouble(
            "CrashLoop",
            "container engine of pod qwen-encode-1 ended with exit code 1; see kubectl logs qwen-encode-1 -c engine "
            "--previous",
        ),
    ),
    (
        "no encoder",
        objects.ended("ValueError: An EC producer-only instance requires a multimodal model.\nexiting"),
        ENCODE,
        Trouble(
            "ModelHasNoEncoder",
            'engine said "An EC producer-only instance requires a multimodal model." Remove spec.encode, or name a '
            "multimodal model in spec.model.name.",
        ),
    ),
    ("done", objects.ended(reason="Completed", code=0), ENCODE, None),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "workload", "trouble"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_words(pod: dict[str, Any], workload: Workload, trouble: Trouble | None) -> None:
    assert explain(pod, workload) == trouble


def test_a_volume_that_cannot_be_mounted_is_told_by_events_of_that_pod() -> None:
    pod = objects.waiting("ContainerCreating")
    words = 'MountVolume.SetUp failed for volume "x" : secret "tls" not found'
    events = [
        objects.event("FailedMount", "older", uid="uid-qwen-encode-1", at="1"),
        objects.event("FailedMount", words, uid="uid-qwen-encode-1", at="2"),
        objects.event("FailedMount", "another pod", uid="other", at="3"),
    ]
    assert explain(pod, ENCODE, events) == Trouble(
        "SecretNotFound", f"pod qwen-encode-1: {words}. Create Secret tls in its namespace."
    )


def test_a_volume_without_a_key_names_the_secret() -> None:
    pod = objects.waiting("ContainerCreating")
    secret = {"name": "tls", "secret": {"secretName": "web"}}
    pod["spec"] = {"volumes": [{"name": "config", "configMap": {"name": "c"}}, secret]}
    words = 'MountVolume.SetUp failed for volume "{}" : references non-existent secret key: tls.crt'

    def told(volume: str) -> Trouble | None:
        return explain(pod, ENCODE, [objects.event("FailedMount", words.format(volume), uid="uid-qwen-encode-1")])

    assert told("tls") == Trouble(
        "SecretKeyMissing", "pod qwen-encode-1: Secret web has no key tls.crt. Add the key to it."
    )
    assert told("x") == Trouble(
        "SecretKeyMissing", "pod qwen-encode-1: Secret of volume x has no key tls.crt. Add the key to it."
    )


def test_a_pod_being_deleted_is_neither_ready_nor_in_trouble() -> None:
    pod = objects.ready()
    assert ready(pod)
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not ready(pod)
    crashed = objects.ended("x")
    crashed["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert explain(crashed, ENCODE) is None


def test_of_several_troubles_the_engines_words_come_first_then_the_name() -> None:
    no_place, crashed, other = objects.unschedulable(NO_GPU), objects.ended("b"), objects.ended("a")
    other["metadata"]["name"] = "qwen-encode-0"
    found = worst([no_place, crashed, other, objects.ready("z")], ENCODE)
    assert found is not None
    assert found.message == 'container engine of pod qwen-encode-0 ended with exit code 1, and said last: "a"'
    assert worst([objects.ready()], ENCODE) is None


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("", ""),
        ("a\n b \n\n", "b"),
        ("X: ValueError: bad\nbye", "ValueError: bad"),
        ("torch.Error: x", "torch.Error: x"),
    ],
)
def test_last_words(message: str, words: str) -> None:
    assert last_words(message) == words
