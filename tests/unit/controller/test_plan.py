from __future__ import annotations

from typing import Any

from epd.controller import kinds
from epd.controller.kinds import kind_of, name_of
from epd.controller.observe import Observed
from epd.controller.plan import Mark, Plan, Taken, mark, plan

OWNER = {"uid": "owner", "controller": True, "kind": "EPDDeployment", "name": "qwen"}


def manifest(kind: str = "Service", name: str = "qwen", **more: Any) -> dict[str, Any]:
    version = {"Service": "v1", "Job": "batch/v1", "PersistentVolumeClaim": "v1", "ControllerRevision": "apps/v1"}[kind]
    metadata = {"name": name, "namespace": "ai", "labels": {"epd.dev/name": "qwen"}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def live(wanted: dict[str, Any], *, owners: Any = (OWNER,), fields: Any = "f", **meta: Any) -> dict[str, Any]:
    entries = [
        {"manager": "epd-operator", "operation": "Apply", "fieldsV1": fields, "time": "now"},
        {"manager": "epd-operator", "operation": "Update", "fieldsV1": "status", "subresource": "status"},
        {"manager": "human", "operation": "Update", "fieldsV1": "theirs"},
    ]
    extra = {"uid": f"uid-{wanted['metadata']['name']}", "managedFields": entries, "ownerReferences": list(owners)}
    return {**wanted, "metadata": {**wanted["metadata"], **extra, **meta}}


def observed(*objects: dict[str, Any], pods: tuple[dict[str, Any], ...] = ()) -> Observed:
    return Observed(owner_uid="owner", children={(kind_of(o), name_of(o)): o for o in objects}, pods=pods)


def test_what_is_absent_is_applied() -> None:
    assert plan([manifest()], observed(), {}) == Plan(apply=(manifest(),))


def test_what_was_applied_and_is_untouched_is_left() -> None:
    memo = {"uid-qwen": mark(manifest(), live(manifest()))}
    assert plan([manifest()], observed(live(manifest())), memo) == Plan()
    assert plan([manifest()], observed(live(manifest())), {}) == Plan(apply=(manifest(),))
    assert plan([manifest(spec=1)], observed(live(manifest())), memo) == Plan(apply=(manifest(spec=1),))
    assert plan([manifest()], observed(live(manifest(), fields="less")), memo) == Plan(apply=(manifest(),))


def test_times_and_fields_of_others_do_not_matter() -> None:
    other = live(manifest())
    other["metadata"]["managedFields"][0]["time"] = "later"
    other["metadata"]["managedFields"][2]["fieldsV1"] = "more"
    assert mark(manifest(), other) == mark(manifest(), live(manifest()))
    assert isinstance(mark(manifest(), other), Mark)


def test_jobs_are_made_once_and_what_is_being_deleted_is_waited_for() -> None:
    job = manifest("Job", "check")
    assert plan([job], observed(), {}).apply == (job,)
    assert plan([manifest("Job", "check", spec=2)], observed(live(job)), {}) == Plan()
    assert plan([manifest()], observed(live(manifest(), deletionTimestamp="now")), {}) == Plan()


def test_a_taken_name_stops_everything() -> None:
    theirs, deployment = {"uid": "x", "controller": True, "kind": "Helm", "name": "r"}, manifest("Job", "check")
    assert plan(
        [manifest(), deployment], observed(live(manifest(), owners=[theirs]), live(manifest("Job", "old"))), {}
    ) == (Plan(taken=(Taken(manifest(), "Helm r", leaving=False),)))
    nobody = plan([manifest()], observed(live(manifest(), owners=())), {})
    assert nobody.taken == (Taken(manifest(), "nobody", leaving=False),)
    earlier = plan([manifest()], observed(live(manifest(), owners=[{**OWNER, "uid": "before"}])), {})
    assert earlier.taken == (Taken(manifest(), "EPDDeployment qwen", leaving=True),)


def test_only_what_is_ours_and_unwanted_is_deleted() -> None:
    old, theirs = live(manifest("Job", "old")), live(manifest("Job", "theirs"), owners=())
    leaving, kept = live(manifest("Job", "leaving"), deletionTimestamp="now"), live(manifest("ControllerRevision", "r"))
    assert plan([], observed(old, theirs, leaving, kept), {}).delete == (old,)


def test_a_claim_goes_after_its_last_pod_and_never_under_retain() -> None:
    claim = live(manifest("PersistentVolumeClaim", "ec"))
    mounting = {"metadata": {"name": "p"}, "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "ec"}}]}}
    assert plan([], observed(claim, pods=(mounting,)), {}).delete == ()
    assert plan([], observed(claim), {}).delete == (claim,)
    retained = live(manifest("PersistentVolumeClaim", "ec"), owners=())
    assert plan([], observed(retained), {}) == Plan()


def test_a_claim_under_retain_is_ours_by_its_label() -> None:
    wanted = manifest("PersistentVolumeClaim", "ec")
    wanted["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "epd-operator"
    assert plan([wanted], observed(live(wanted, owners=())), {}) == Plan(apply=(wanted,))
    assert kind_of(wanted) == kinds.PERSISTENT_VOLUME_CLAIM
