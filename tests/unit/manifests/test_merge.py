from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.manifests.merge import merge_pod_template

BASE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "securityContext": {"runAsUser": 1000},
        "tolerations": [{"key": "a"}],
        "containers": [
            {
                "name": "engine",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 8000, "name": "http"}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                "livenessProbe": {"httpGet": {"path": "/health"}, "periodSeconds": 10},
                "args": ["--a", "--b"],
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}],
    },
}


def engine(patch: dict[str, Any]) -> dict[str, Any]:
    merged = merge_pod_template(BASE, {"spec": {"containers": [{"name": "engine", **patch}]}})
    container: dict[str, Any] = merged["spec"]["containers"][0]
    return container


def spec(patch: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = merge_pod_template(BASE, {"spec": patch})["spec"]
    return merged


def test_no_patch_is_a_copy() -> None:
    merged = merge_pod_template(BASE)
    assert merged == BASE
    merged["spec"]["containers"][0]["args"].append("--c")
    assert BASE["spec"]["containers"][0]["args"] == ["--a", "--b"]


def test_maps_merge_and_null_removes() -> None:
    merged = merge_pod_template(BASE, {"metadata": {"labels": {"b": "2"}, "annotations": {"c": "3"}}})
    assert merged["metadata"] == {"labels": {"a": "1", "b": "2"}, "annotations": {"c": "3"}}
    assert spec({"securityContext": {"supplementalGroups": [1]}})["securityContext"] == {
        "runAsUser": 1000,
        "supplementalGroups": [1],
    }
    assert "securityContext" not in spec({"securityContext": None})


def test_lists_without_a_key_are_replaced() -> None:
    assert spec({"tolerations": [{"key": "b"}]})["tolerations"] == [{"key": "b"}]
    assert engine({"args": ["--c"]})["args"] == ["--c"]


def test_lists_with_a_key_merge_by_it() -> None:
    assert engine({"env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]})["env"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "3"},
        {"name": "C", "value": "4"},
    ]
    assert engine({"ports": [{"containerPort": 9000}]})["ports"] == [
        {"containerPort": 8000, "name": "http"},
        {"containerPort": 9000},
    ]
    assert engine({"volumeMounts": [{"name": "disk", "mountPath": "/tmp"}]})["volumeMounts"] == [
        {"name": "disk", "mountPath": "/tmp"}
    ]
    assert [each["name"] for each in spec({"containers": [{"name": "sidecar"}]})["containers"]] == ["engine", "sidecar"]
    assert spec({"initContainers": [{"name": "first"}]})["initContainers"] == [{"name": "first"}]


@pytest.mark.parametrize(
    ("patch", "volume"),
    [
        ({"emptyDir": {"sizeLimit": "32Gi"}}, {"emptyDir": {"medium": "Memory", "sizeLimit": "32Gi"}}),
        ({"persistentVolumeClaim": {"claimName": "a"}}, {"persistentVolumeClaim": {"claimName": "a"}}),
    ],
)
def test_another_source_of_a_volume_takes_its_place(patch: dict[str, Any], volume: dict[str, Any]) -> None:
    assert spec({"volumes": [{"name": "shm", **patch}]})["volumes"] == [{"name": "shm", **volume}]


def test_another_source_of_a_variable_takes_its_place() -> None:
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    assert engine({"env": [{"name": "A", "valueFrom": source}]})["env"][0] == {"name": "A", "valueFrom": source}


def test_another_handler_of_a_probe_takes_its_place() -> None:
    assert engine({"livenessProbe": {"exec": {"command": ["true"]}}})["livenessProbe"] == {
        "exec": {"command": ["true"]},
        "periodSeconds": 10,
    }
    hook = {"preStop": {"sleep": {"seconds": 5}}}
    other = {"preStop": {"exec": {"command": ["true"]}}}
    assert merge_pod_template({"lifecycle": hook}, {"lifecycle": other}) == {"lifecycle": other}
    assert engine({"livenessProbe": {"periodSeconds": 5}})["livenessProbe"] == {
        "httpGet": {"path": "/health"},
        "periodSeconds": 5,
    }


def test_later_patches_win() -> None:
    patches = ({"spec": {"nodeSelector": {"a": "1", "b": "1"}}}, {"spec": {"nodeSelector": {"b": "2"}}})
    assert merge_pod_template(BASE, *patches)["spec"]["nodeSelector"] == {"a": "1", "b": "2"}


def test_what_has_no_key_is_left_to_the_api_server() -> None:
    assert spec({"containers": [{"image": "a"}, "text"]})["containers"][1:] == [{"image": "a"}, "text"]
    assert spec({"volumes": "text"})["volumes"] == "text"


_ENV = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("ABC")}, optional={"value": st.text(max_size=2)}),
    max_size=3,
    unique_by=lambda variable: variable["name"],
)
_PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": st.dictionaries(st.sampled_from("ab"), st.text(max_size=2) | st.none(), max_size=2),
        "tolerations": st.lists(st.fixed_dictionaries({"key": st.sampled_from("ab")}), max_size=2),
        "containers": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from(["engine", "sidecar"])}, optional={"env": _ENV}),
            max_size=2,
            unique_by=lambda container: container["name"],
        ),
        "volumes": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["shm", "x"])}, optional={"emptyDir": st.just({}), "hostPath": st.just({})}
            ),
            max_size=2,
            unique_by=lambda volume: volume["name"],
        ),
    },
)


@given(_PATCHES)
def test_merging_twice_is_merging_once(patch: dict[str, Any]) -> None:
    before = copy.deepcopy((BASE, patch))
    once = merge_pod_template(BASE, {"spec": patch})
    assert merge_pod_template(BASE, {"spec": patch}, {"spec": patch}) == once
    assert merge_pod_template(once, {"spec": patch}) == once
    assert (BASE, patch) == before
