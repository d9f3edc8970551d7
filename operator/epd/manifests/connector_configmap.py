"""The ConfigMap that brings the Managed connector into engines of any image. Pure.

Immutable and named by its content: a new release of the operator makes another one, and pods of a kept rendering go on
with theirs. Which may be pruned is the controller's to say, by `config_map_of` of all that may still start a pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from epd.api import names
from epd.api.types import ConnectorKind, EPDDeployment, Spec
from epd.manifests import pod
from epd.manifests.context import Context, Manifest
from epd.manifests.labels import labels, metadata
from epd.topology.canonical import digest

_HASH_LENGTH: Final = 10
"""40 bits: the few releases that one EPDDeployment sees do not collide."""


def is_managed(spec: Spec) -> bool:
    """Tell whether the engines load the connector."""
    return spec.encoder_cache is not None and spec.encoder_cache.connector is ConnectorKind.MANAGED


def connector_name(epd: EPDDeployment, context: Context) -> str:
    """Return the name of the ConfigMap for the sources of this release."""
    return names.connector_config_map(epd.metadata.name, digest(context.connector_sources, length=_HASH_LENGTH))


def connector_configmap(epd: EPDDeployment, context: Context) -> tuple[Manifest, ...]:
    """Return the ConfigMap; nothing with another connector."""
    if not is_managed(epd.spec):
        return ()
    return (
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(epd, connector_name(epd, context), labels(epd, names.COMPONENT_CONNECTOR)),
            "immutable": True,
            "data": dict(context.connector_sources),
        },
    )


def connector_volume(epd: EPDDeployment, context: Context) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return volumes and mounts of an engine: the package below a directory that is on its module path."""
    if not is_managed(epd.spec):
        return [], []
    volume = {"name": names.CONNECTOR_VOLUME, "configMap": {"name": connector_name(epd, context)}}
    path = f"{names.CONNECTOR_PATH}/{names.CONNECTOR_PACKAGE}"
    return [volume], [pod.mount(names.CONNECTOR_VOLUME, path, read_only=True)]


def config_map_of(pod_spec: Mapping[str, Any]) -> str | None:
    """Return the name of the connector's ConfigMap that a pod spec mounts: of a pod, a ReplicaSet, a kept template."""
    for volume in pod_spec.get("volumes") or ():
        if volume.get("name") == names.CONNECTOR_VOLUME and volume.get("configMap"):
            return str(volume["configMap"].get("name", ""))
    return None
