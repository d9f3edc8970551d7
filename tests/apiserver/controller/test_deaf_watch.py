from __future__ import annotations

from pathlib import Path

import pytest

from apiserver.controller.deaf import deaf_proxy
from apiserver.controller.objects import CHILDREN, children, epd
from apiserver.controller.operator import eventually, running
from apiserver.server import ApiServer, Namespace

pytestmark = pytest.mark.apiserver


def test_a_deaf_watch_fails_liveness_and_the_resync_still_works(
    api_server: ApiServer, namespace: Namespace, tmp_path: Path
) -> None:
    flags = (f"--namespace={namespace.name}", "--resync-interval=2s", "--watch-lag-limit=2s")
    with deaf_proxy(api_server, tmp_path) as (proxy, kubeconfig), running(kubeconfig, tmp_path, *flags) as operator:
        namespace.apply(epd())
        eventually(lambda: children(namespace) == CHILDREN, about=operator.log.read_text)
        # Alive, although lists see changes all the time: the watches deliver them.
        assert operator.health() == (200, "ok")
        proxy.deaf.set()
        namespace.apply(epd(encode=None))
        eventually(lambda: "deployment.apps/qwen-encode" not in children(namespace))
        eventually(lambda: operator.health()[0] == 503)
        assert "is deaf" in operator.health()[1]
        assert operator.process.poll() is None
