"""The Service that is the deployment's URL. Pure."""

from __future__ import annotations

from typing import Any

from epd.api import names
from epd.api.proxy import DEFAULT_PORTS
from epd.api.types import EPDDeployment
from epd.manifests.context import Manifest
from epd.manifests.labels import component_selector, labels, metadata


def port_name(epd: EPDDeployment) -> str:
    """Return the name of the data port, here and in the proxy's pods: the scheme.

    So the Service leads to no pod that speaks the other one while certificates come or go with a rollout.
    """
    return epd.spec.proxy.scheme


def service(epd: EPDDeployment) -> Manifest:
    """Return the Service in front of the proxy's data port."""
    given, name = epd.spec.proxy.service, port_name(epd)
    meta: dict[str, Any] = metadata(epd, names.service(epd.metadata.name), labels(epd, names.COMPONENT_PROXY))
    if given.annotations:
        meta["annotations"] = dict(given.annotations)
    port = {"name": name, "port": epd.spec.proxy.port, "targetPort": name, "protocol": "TCP", "appProtocol": name}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {
            "type": str(given.type),
            "selector": component_selector(epd, names.COMPONENT_PROXY),
            "ports": [port],
        },
    }


def url(epd: EPDDeployment) -> str:
    """Return where clients in the cluster send requests: `https://<name>.<namespace>.svc`, with the port if unusual."""
    proxy = epd.spec.proxy
    base = f"{proxy.scheme}://{names.service(epd.metadata.name)}.{epd.metadata.namespace}.svc"
    return base if proxy.port == DEFAULT_PORTS[proxy.scheme] else f"{base}:{proxy.port}"
