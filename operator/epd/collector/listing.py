"""Asks the API server for what says which versions live, in an order that none can slip through. Decides nothing."""

from __future__ import annotations

import http
import time
from collections.abc import Callable

from epd.api import names
from epd.collector.apiserver import ApiServer
from epd.collector.endpoint import ApiError
from epd.collector.seen import Listed, SeenClaim, see_claim, see_epd, see_pod, see_workload


def list_namespace(api: ApiServer, namespace: str, *, clock: Callable[[], float] = time.monotonic) -> Listed:
    """List EPDDeployments, Deployments, ReplicaSets and pods of a namespace.

    A version moves from spec to Deployment to ReplicaSet to pods; asking in this order, a version that moves on
    meanwhile is met in the next list. Only the way back is not met, from a last pod to an object that was made anew
    since the first list: its engines would see misses. Pods are listed without a selector, since pins are held by pods
    of any label.

    Raises:
        ApiError: any of the lists is not complete; then nothing is known.
    """
    taken = clock()
    apps = f"/apis/apps/v1/namespaces/{namespace}"
    epds = api.list_all(f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}", see_epd)
    workloads = api.list_all(f"{apps}/deployments", see_workload) + api.list_all(f"{apps}/replicasets", see_workload)
    pods = api.list_all(f"/api/v1/namespaces/{namespace}/pods", see_pod, metadata_only=True)
    return Listed(taken=taken, epds=tuple(epds), workloads=tuple(workloads), pods=tuple(pods))


def get_claim(api: ApiServer, namespace: str, name: str) -> SeenClaim | None:
    """Return the claim, None where there is none. Raises ApiError: nothing is known."""
    try:
        return see_claim(api.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"))
    except ApiError as error:
        if error.status == http.HTTPStatus.NOT_FOUND:
            return None
        raise
