from __future__ import annotations

from typing import Any

from epd.api.names import Role
from epd.controller.revisions import resolve, with_template


def deployment(
    inputs: str, image: str, *, pairing: str = "p1", role: Role = Role.ENCODE, source: str = ""
) -> dict[str, Any]:
    volumes = [{"name": "connector", "configMap": {"name": source}}] if source else []
    spec = {"containers": [{"image": image}], "volumes": volumes}
    return {
        "metadata": {
            "name": f"qwen-{role}",
            "namespace": "ai",
            "labels": {"epd.dev/name": "qwen", "epd.dev/model-version": "v1"},
            "annotations": {"epd.dev/inputs": inputs},
            "ownerReferences": [{"uid": "u"}],
        },
        "spec": {"replicas": 2, "template": {"metadata": {"labels": {"epd.dev/pairing": pairing}}, "spec": spec}},
    }


def both(encode: dict[str, Any], other: dict[str, Any]) -> dict[Role, dict[str, Any]]:
    return {Role.ENCODE: encode, Role.PREFILL_DECODE: other}


PD = Role.PREFILL_DECODE


def test_the_first_rendering_is_kept() -> None:
    found = resolve({Role.ENCODE: deployment("i1", "a")}, ())
    (written,) = found.write
    assert found.templates == {Role.ENCODE: deployment("i1", "a")["spec"]["template"]}
    assert written["data"] == {"inputs": "i1", "template": found.templates[Role.ENCODE]}
    assert written["revision"] == 1
    assert written["metadata"]["labels"] == {"epd.dev/name": "qwen", "app.kubernetes.io/component": "encode"}
    assert (found.outdated, found.delete) == ((), ())


def test_another_rendering_of_the_same_inputs_is_not_taken() -> None:
    history = resolve({Role.ENCODE: deployment("i1", "a")}, ()).write
    found = resolve({Role.ENCODE: deployment("i1", "b")}, history)
    assert found.templates[Role.ENCODE]["spec"]["containers"][0]["image"] == "a"
    assert (found.write, found.outdated) == ((), (Role.ENCODE,))
    assert with_template(deployment("i1", "b"), found.templates[Role.ENCODE]) == deployment("i1", "a")


def test_other_inputs_take_it_and_going_back_renumbers_the_old_one() -> None:
    first = resolve({Role.ENCODE: deployment("i1", "a")}, ()).write
    second = resolve({Role.ENCODE: deployment("i2", "b")}, first).write
    third = resolve({Role.ENCODE: deployment("i1", "a")}, (*first, *second)).write
    assert [r["revision"] for r in (*first, *second, *third)] == [1, 2, 3]
    assert third[0]["metadata"]["name"] == first[0]["metadata"]["name"] != second[0]["metadata"]["name"]


def test_a_role_follows_another_whose_pairing_it_would_lose() -> None:
    history = resolve(both(deployment("i1", "a"), deployment("i1", "a", role=PD)), ()).write
    changed = resolve(both(deployment("i2", "b"), deployment("i1", "b", role=PD)), history)
    assert (changed.templates[PD]["spec"]["containers"][0]["image"], changed.outdated) == ("a", (PD,))
    repaired = both(deployment("i2", "b", pairing="p2"), deployment("i1", "b", pairing="p2", role=PD))
    assert resolve(repaired, history).templates[PD]["spec"]["containers"][0]["image"] == "b"


def test_ten_are_kept_and_a_role_that_is_gone_keeps_none() -> None:
    history: tuple[dict[str, Any], ...] = ()
    for number in range(10):
        history += resolve({Role.ENCODE: deployment(str(number), "a")}, history).write
    found = resolve({Role.ENCODE: deployment("new", "a")}, history)
    assert [r["revision"] for r in found.delete] == [1]
    assert {r["revision"] for r in resolve({PD: deployment("i", "a", role=PD)}, history).delete} == set(range(1, 11))


def test_a_template_whose_connector_is_gone_is_not_kept() -> None:
    old, new = deployment("i1", "a", source="old"), deployment("i1", "a", source="new")
    history = resolve({Role.ENCODE: old}, (), config_maps={"old"}).write
    kept = resolve({Role.ENCODE: new}, history, config_maps={"old", "new"})
    assert (kept.templates[Role.ENCODE], kept.outdated) == (old["spec"]["template"], (Role.ENCODE,))
    taken = resolve({Role.ENCODE: new}, history, config_maps={"new"})
    assert (taken.templates[Role.ENCODE], taken.outdated) == (new["spec"]["template"], ())
    assert [r["revision"] for r in taken.write] == [2]
