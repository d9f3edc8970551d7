from __future__ import annotations

from typing import Any

import pytest

from epd.api.types import ClaimRef
from epd.collector.seen import Root, SeenClaim, SeenPod, SeenWorkload, see_claim, see_epd, see_pod, see_workload
from epd.topology.model_version import model_version
from unit.collector.listed import ROOT, VERSION, epd, raw_epd, raw_pod, raw_workload
from unit.topology.objects import epd as parsed_epd


def test_a_pod_by_its_labels() -> None:
    assert see_pod(raw_pod("u", epd="qwen", version="v", role="encode")) == SeenPod(
        uid="u", epd="qwen", version="v", engine=True
    )
    assert see_pod({"metadata": {"uid": "u"}}) == SeenPod(uid="u")


def test_a_proxy_is_no_engine_and_a_pod_of_a_role_is_one() -> None:
    assert not see_pod(raw_pod("u", epd="qwen")).engine
    assert see_pod(raw_pod("u", epd="qwen", role="encode")).engine


@pytest.mark.parametrize(("replicas", "expected"), [(None, 1), (0, 0), (3, 3)])
def test_absent_replicas_stand_for_one(replicas: int | None, expected: int) -> None:
    assert see_workload(raw_workload("v", replicas)) == SeenWorkload(version="v", replicas=expected)


def test_a_workload_of_somebody_else() -> None:
    assert see_workload({"metadata": {}, "spec": {"replicas": 2, "template": {}}}) == SeenWorkload(
        version="", replicas=2
    )


def test_a_claim() -> None:
    raw = {
        "metadata": {"uid": "u", "annotations": {"epd.dev/adopt-encoder-cache-root": "r"}},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}},
    }
    assert see_claim(raw) == SeenClaim(uid="u", adopts="r", requested_bytes=1 << 30)
    assert see_claim({"metadata": {"uid": "u"}}) == SeenClaim(uid="u")
    assert see_claim(raw | {"spec": {"resources": {"requests": {"storage": "1e9"}}}}).requested_bytes is None


def test_versions_of_spec_and_status() -> None:
    seen = epd(status={"modelVersion": "v1-a-1", "roles": [{"modelVersions": ["v1-b-2", "v1-a-1"]}, {}]})
    assert seen.version == model_version(parsed_epd().spec)
    assert seen.version.startswith(VERSION)
    assert seen.versions == {seen.version, "v1-a-1", "v1-b-2"}
    assert seen.inputs["name"] == "Qwen/Qwen2.5-VL-3B-Instruct"
    assert not seen.unreadable


def test_who_waits_for_the_end_of_its_entries() -> None:
    seen = epd(metadata={"deletionTimestamp": "2026-11-29T20:00:00Z", "finalizers": ["x/y", "epd.dev/encoder-cache"]})
    assert (seen.deleting, seen.finalizing) == (True, True)
    assert (epd().deleting, epd().finalizing) == (False, False)


def test_of_an_object_that_cannot_be_read_what_can_be_told_is_kept() -> None:
    seen = see_epd(
        raw_epd(
            spec={"engine": {"image": "vllm/vllm-openai:v0.33.0", "device": "Quantum"}},
            collection={"minIdle": "2h"},
            status={"modelVersion": "v1-a-1"},
        )
    )
    assert seen.unreadable == "spec.engine.device: Input should be 'Auto', 'CUDA', 'ROCm' or 'CPU'"
    assert (seen.version, seen.versions) == ("", {"v1-a-1"})
    assert seen.claim == ClaimRef(claim_name="ec")
    assert seen.cache is not None
    assert seen.cache.garbage_collection.min_idle == "2h"


def test_a_policy_that_cannot_be_read_is_none() -> None:
    seen = epd(collection={"minIdle": "for ever"})
    assert seen.unreadable
    assert seen.cache is None
    assert seen.uses(ROOT)


@pytest.mark.parametrize("volume", [{"nfs": {}}, {}, {"persistentVolumeClaim": {}}])
def test_a_claim_that_cannot_be_told_may_be_any(volume: dict[str, Any]) -> None:
    seen = epd(spec={"encoderCache": {"volume": volume}})
    assert seen.uses(ROOT)
    assert seen.uses(Root(claim="other"))


def test_without_a_cache_no_root_is_used() -> None:
    assert not epd(spec={"encoderCache": {"connector": "Custom"}}).uses(ROOT)
    raw = raw_epd()
    del raw["spec"]["encoderCache"]
    assert not see_epd(raw).uses(ROOT)


def test_the_claim_of_a_template() -> None:
    seen = epd(spec={"encoderCache": {"volume": {"volumeClaimTemplate": {"spec": {}}}}})
    assert seen.uses(Root(claim="qwen-encoder-cache"))
    assert not seen.uses(ROOT)


@pytest.mark.parametrize(
    ("given", "root", "same"),
    [
        ("", "", True),
        ("a/b", "a/b/", True),
        ("./a//b", "a/b", True),
        (".", "", True),
        ("a", "", False),
        ("a", "a/b", False),
    ],
)
def test_a_directory_has_many_spellings(given: str, root: str, same: bool) -> None:
    assert epd(sub_path=given).uses(Root(claim="ec", sub_path=root)) is same
