"""A real single-node Kubernetes on this machine: Linux, root, no container engine.

It starts components by their own flags and configuration files, and ends them; what they leave on the machine is
`cleanup`'s, images are `images`' and volumes `provisioner`'s.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from . import builds, cleanup, controlplane, images, paths, pki, processes, snapshot
from .controlplane import Address
from .steps import HarnessError, run, say, step, until

GATEWAY = "10.85.0.1"
PODS = "10.85.0.0/16"
BRIDGE = "epd0"
ADDRESS = Address(host=GATEWAY, port=6443, etcd_port=2479)
"""On the bridge: pods and this machine reach it, the network outside does not."""
NODE = "node-1"

ENDPOINT = f"unix://{paths.RUN}/containerd.sock"
ORDER = ("provisioner", "proxy", "scheduler", "controller-manager", "kubelet")
"""Ended in this order, before the pods' sandboxes are removed through containerd."""


def kubeconfig() -> Path:
    """The administrator's kubeconfig."""
    return paths.node() / "kubeconfig"


def volumes() -> Path:
    """Folder of the hostPath volumes."""
    return paths.node() / "volumes"


def running() -> bool:
    """Whether every component lives."""
    names = ("etcd", "apiserver", "containerd", *ORDER)
    return all(processes.alive(name, state=paths.node()) for name in names)


def up() -> Path:
    """Brings the node up, or completes what an interrupted run began, and returns the kubeconfig."""
    if running():
        return kubeconfig()
    state = paths.node()
    if len(str(paths.state() / paths.KUBELET_SOCKET)) > paths.SOCKET_PATH_LIMIT:
        raise HarnessError(f"{state} is too long a path for kubelet's sockets; set EPD_STATE to a shorter folder")
    _alone()
    builds.packages()
    kube = builds.kube()
    pause = images.pause()
    if state.exists() and not processes.alive("apiserver", state=state):
        say("    remains of an earlier node are removed first")
        down()
    _record(state)
    with step("start the control plane and containerd", may_take="10 s"):
        pki.make(state / "pki", addresses=["127.0.0.1", GATEWAY, controlplane.KUBERNETES_SERVICE])
        pki.kubeconfig(kubeconfig(), server=ADDRESS.server, pki=state / "pki")
        pki.kubeconfig(state / "node.kubeconfig", server=ADDRESS.server, pki=state / "pki", user="system:node:node-1")
        _network()
        controlplane.start(kube, state=state, address=ADDRESS, authorization="Node,RBAC", more=API_FLAGS)
        _containerd(state)
        controlplane.wait(state=state, address=ADDRESS)
        until("containerd", _answers, seconds=20)  # kubelet gives up at once without it
    with step("start scheduler, controllers, kubelet and kube-proxy; node Ready", may_take="20 s"):
        more = ["--cluster-cidr", PODS]
        controlplane.start_controllers(kube, state=state, kubeconfig=kubeconfig(), more=more)
        scheduler = ["--kubeconfig", kubeconfig(), "--leader-elect=false", "--secure-port", "0"]
        processes.start("scheduler", [kube, "scheduler", *scheduler], state=state)
        images.load_archive(pause)
        _kubelet(kube, state)
        _proxy(kube, state)
        until(f"node {NODE} Ready", _ready, seconds=60, every=0.5)
    with step("storage classes and their provisioner"):
        volumes().mkdir(exist_ok=True)
        run([paths.tool("kubectl"), "--kubeconfig", kubeconfig(), "apply", "-f", paths.HARNESS / "storage.yaml"])
        command = [sys.executable, "-m", "cluster.provisioner", kubeconfig(), volumes(), volumes()]
        processes.start("provisioner", command, state=state, env={"PYTHONPATH": str(paths.HARNESS.parent)})
    return kubeconfig()


def down() -> list[str]:
    """Ends the node and returns what it left behind, in words: nothing, or a defect of ours."""
    state = paths.node()
    if not state.exists():
        return []
    record = state / "before.json"
    before = json.loads(record.read_text()) if record.exists() else {}
    with step("end the node's processes and pods", may_take="30 s"):
        for name in ORDER:
            processes.stop(name, state=state)
        if processes.alive("containerd", state=state):
            run([builds.kube(), "remove-pods", ENDPOINT], timeout=90)
        for name in ("apiserver", "etcd", "containerd"):
            processes.stop(name, state=state)
    with step("remove mounts, bridge, firewall rules, control groups and files"):
        cleanup.remove(before, state=state, bridge=BRIDGE)
    return snapshot.leftovers(before, snapshot.take()) if before else []


API_FLAGS = ("--advertise-address", GATEWAY, "--allow-privileged", "--kubelet-preferred-address-types", "InternalIP")


def _alone() -> None:
    """Raises HarnessError: the node of another clone has the ports, the bridge and the sockets."""
    owner = paths.RUN / "owner"
    other = Path(owner.read_text()) if owner.exists() else paths.node()
    if other != paths.node() and processes.alive("apiserver", state=other):
        raise HarnessError(f"this machine has room for one node, and {other} is it: end it there with `make demo-down`")


def _record(state: Path) -> None:
    if not (state / "before.json").exists():
        state.mkdir(parents=True, exist_ok=True)
        (state / "before.json").write_text(json.dumps(snapshot.take(), indent=1))


def _network() -> None:
    run(["sysctl", "-qw", "net.ipv4.ip_forward=1"])
    if not Path(f"/sys/class/net/{BRIDGE}").exists():
        run(["ip", "link", "add", BRIDGE, "type", "bridge"])
        run(["ip", "addr", "add", f"{GATEWAY}/16", "dev", BRIDGE])
        run(["ip", "link", "set", BRIDGE, "up"])


def _containerd(state: Path) -> None:
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(state / "cni" / "addresses"),
            "ranges": [[{"subnet": PODS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    folder = state / "cni" / "net.d"
    folder.mkdir(parents=True, exist_ok=True)
    chain = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}
    (folder / "10-bridge.conflist").write_text(json.dumps(chain))
    paths.RUN.mkdir(exist_ok=True)
    (paths.RUN / "owner").write_text(str(state))
    engine = state / "engine"
    if not engine.exists():
        engine.mkdir()  # empty until `images.load` has an environment; a pod's mount needs a source from the start
    (state / "spec.json").write_text(json.dumps(_base_spec(engine)))
    words = {"STATE": str(state), "RUN": str(paths.RUN), "PAUSE": images.PAUSE}
    template = (paths.HARNESS / "containerd.toml").read_text()
    for word, value in words.items():
        template = template.replace(f"@{word}@", value)
    (state / "containerd.toml").write_text(template)
    processes.start("containerd", ["containerd", "--config", state / "containerd.toml"], state=state)


def _base_spec(engine: Path) -> object:
    """containerd's default OCI spec with vLLM mounted read-only into every container.

    The CPU environment has 5.5 GB: a layer of that size takes minutes to pack and unpack, and twice the disk.
    """
    spec = json.loads(run(["ctr", "oci", "spec"]))
    mount = {"destination": images.ENGINE_MOUNT, "type": "bind", "source": str(engine), "options": ["rbind", "ro"]}
    spec["mounts"].append(mount)
    return spec


def _kubelet(kube: Path, state: Path) -> None:
    template = (paths.HARNESS / "kubelet.yaml").read_text()
    (state / "kubelet.yaml").write_text(template.replace("@STATE@", str(state)).replace("@ENDPOINT@", ENDPOINT))
    flags = ["--config", state / "kubelet.yaml", "--kubeconfig", state / "node.kubeconfig", "--node-ip", GATEWAY]
    flags += ["--hostname-override", NODE, "--root-dir", state / "kubelet"]
    processes.start("kubelet", [kube, "kubelet", *flags], state=state)


def _proxy(kube: Path, state: Path) -> None:
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(kubeconfig())},
        "clusterCIDR": PODS,
        "hostnameOverride": NODE,
        "conntrack": {"maxPerCore": 0, "min": 0},  # leave the machine's own limits
        "healthzBindAddress": "127.0.0.1:10256",
        "iptables": {"localhostNodePorts": False},  # else it sets route_localnet
    }
    (state / "proxy.json").write_text(json.dumps(config))
    processes.start("proxy", [kube, "proxy", "--config", state / "proxy.json"], state=state)


def _answers() -> bool:
    try:
        run(["ctr", "--address", f"{paths.RUN}/containerd.sock", "version"], timeout=5)
    except HarnessError:
        return False
    return True


def _ready() -> bool:
    for name in ("kubelet", "proxy", "controller-manager", "scheduler"):
        if not processes.alive(name, state=paths.node()):
            raise HarnessError(f"{name} ended:\n{processes.log_tail(name, state=paths.node())}")
    path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    command = [
        paths.tool("kubectl"),
        "--kubeconfig",
        kubeconfig(),
        "get",
        "node",
        NODE,
        "-o",
        path,
        "--ignore-not-found",
    ]
    return run(command) == "True"
