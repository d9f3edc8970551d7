"""Makes a hostPath volume for every pending claim of the harness's storage classes, and deletes it when released.

A process of its own, level-triggered: each event of a claim or volume leads to one pass over all of them.
usage: python -m cluster.provisioner KUBECONFIG FOLDER FOLDER_ON_NODE
"""

from __future__ import annotations

import os
import queue
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

PROVISIONER = "test.epd.dev/hostpath"
BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
RESYNC = 30
"""Seconds until a watch ends and a pass is made anyway."""


class Provisioner:
    """One pass after the other over claims and volumes. `folder` here is `on_node` on the node."""

    def __init__(self, api: client.ApiClient, *, folder: Path, on_node: Path) -> None:
        self._core = client.CoreV1Api(api)
        self._storage = client.StorageV1Api(api)
        self._folder = folder
        self._on_node = on_node
        self._refused: set[str] = set()

    def run(self) -> None:
        """Never returns."""
        changed: queue.Queue[None] = queue.Queue()
        lists = (self._core.list_persistent_volume_claim_for_all_namespaces, self._core.list_persistent_volume)
        for each in lists:
            threading.Thread(target=_follow, args=(each, changed), daemon=True).start()
        while True:
            changed.get()
            while not changed.empty():
                changed.get_nowait()
            try:
                self.reconcile()
            except ApiException as error:
                print(f"pass failed: {error.status} {error.reason}", flush=True)
                time.sleep(1)
                changed.put(None)

    def reconcile(self) -> None:
        """Provisions what is pending, deletes what is released."""
        classes = {c.metadata.name: c for c in self._storage.list_storage_class().items if c.provisioner == PROVISIONER}
        for claim in self._core.list_persistent_volume_claim_for_all_namespaces().items:
            found = classes.get(claim.spec.storage_class_name)
            if found and claim.status.phase == "Pending" and not claim.spec.volume_name:
                self._provision(claim, found)
        for volume in self._core.list_persistent_volume().items:
            ours = (volume.metadata.annotations or {}).get(BY) == PROVISIONER
            if ours and volume.status.phase == "Released" and volume.spec.persistent_volume_reclaim_policy == "Delete":
                self._delete(volume)

    def _provision(self, claim: Any, storage_class: Any) -> None:
        annotations = claim.metadata.annotations or {}
        if storage_class.volume_binding_mode == "WaitForFirstConsumer" and SELECTED_NODE not in annotations:
            return
        served = storage_class.parameters["accessModes"].split(",")
        if unserved := [mode for mode in claim.spec.access_modes if mode not in served]:
            self._refuse(claim, f"{storage_class.metadata.name} does not serve {', '.join(unserved)}")
            return
        name = f"pvc-{claim.metadata.uid}"
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        uid, gid = storage_class.parameters["owner"].split(":")
        os.chown(folder, int(uid), int(gid))
        folder.chmod(int(storage_class.parameters["mode"], 8))
        spec = {
            "accessModes": claim.spec.access_modes,
            "capacity": {"storage": claim.spec.resources.requests["storage"]},
            "persistentVolumeReclaimPolicy": storage_class.reclaim_policy,
            "storageClassName": storage_class.metadata.name,
            "volumeMode": "Filesystem",
            "hostPath": {"path": str(self._on_node / name), "type": "Directory"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.metadata.namespace,
                "name": claim.metadata.name,
                "uid": claim.metadata.uid,
            },
        }
        body = {"metadata": {"name": name, "annotations": {BY: PROVISIONER}}, "spec": spec}
        try:
            self._core.create_persistent_volume(body)
        except ApiException as error:
            if error.status != 409:
                raise

    def _refuse(self, claim: Any, why: str) -> None:
        if claim.metadata.uid in self._refused:
            return
        self._refused.add(claim.metadata.uid)
        event = {
            "metadata": {"generateName": f"{claim.metadata.name}.", "namespace": claim.metadata.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.metadata.namespace,
                "name": claim.metadata.name,
                "uid": claim.metadata.uid,
            },
            "reason": "ProvisioningFailed",
            "message": f"failed to provision volume: {why}",
            "type": "Warning",
            "count": 1,
            "source": {"component": PROVISIONER},
        }
        self._core.create_namespaced_event(claim.metadata.namespace, event)

    def _delete(self, volume: Any) -> None:
        folder = self._folder / volume.metadata.name
        if folder.exists():
            shutil.rmtree(folder)
        try:
            self._core.delete_persistent_volume(volume.metadata.name)
        except ApiException as error:
            if error.status != 404:
                raise


def _follow(listing: Any, changed: queue.Queue[None]) -> None:
    while True:
        try:
            for _ in watch.Watch().stream(listing, timeout_seconds=RESYNC):
                changed.put(None)
        except Exception as error:
            print(f"watch ended: {type(error).__name__}", flush=True)
            time.sleep(1)
        changed.put(None)


if __name__ == "__main__":
    kubeconfig, folder, on_node = sys.argv[1:]
    api_client = config.new_client_from_config(kubeconfig)
    Provisioner(api_client, folder=Path(folder), on_node=Path(on_node)).run()
