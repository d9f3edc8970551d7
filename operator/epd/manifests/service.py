"""The Service that is the deployment's URL. Pure."""

from __future__ import annotations

from typing import Any, Final

from epd.api import names
from epd.api.types import EPDDeployment
from epd.manifests.context import Manifest
from epd.manifests.labels import component_selector, labels, metadata

PORT_NAME: Final = "http"
_HTTP_PORT: Final = 80


def service(epd: EPDDeployment) -> Manifest:
    """Return the Service in front of the proxy's data port."""
    given = epd.spec.proxy.service
    meta: dict[str, Any] = metadata(epd, names.service(epd.metadata.name), labels(epd, names.COMPONENT_PROXY))
    if given.annotations:
        meta["annotations"] = dict(given.annotations)
    port = {"name": PORT_NAME, "port": given.port, "targetPort": PORT_NAME, "protocol": "TCP", "appProtocol": "http"}
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
    """Return where clients in the cluster send requests: `http://<name>.<namespace>.svc`, with the port unless 80."""
    port = epd.spec.proxy.service.port
    host = f"{names.service(epd.metadata.name)}.{epd.metadata.namespace}.svc"
    return f"http://{host}" if port == _HTTP_PORT else f"http://{host}:{port}"
