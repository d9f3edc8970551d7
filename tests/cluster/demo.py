"""The demo: from nothing to one question about a picture, answered by real vLLM, with what happened on the way.

Every step can be repeated: after an interrupt the same command goes on. It shows and never asserts; tests do that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from . import builds, chat, engine, images, paths, providers
from .client import RESTRICTED, Cluster
from .steps import HarnessError, say, step

CHART = paths.REPO / "charts" / "epd-operator"
EXAMPLE = paths.REPO / "examples" / "01-cpu-demo.yaml"
RELEASE, OPERATOR_NAMESPACE = "epd-operator", "epd-system"
NAMESPACE = "demo"
COLOUR = "red"
READY_SECONDS = 900
"""Two engines of a tiny model are up in 1 to 3 minutes on 2 cores; the rest is for slower machines."""


def run_demo() -> None:
    """Cluster, images, operator, example, and one chat completion."""
    began = time.monotonic()
    provider = providers.choose()
    say(f"The demo runs on: {provider}. Nothing is left of it after `make demo-down`.")
    _prepare(provider)
    cluster = providers.up(provider)
    providers.load(provider)
    _operator(cluster)
    name = _example(cluster)
    _ready(cluster, name)
    _question(cluster, name)
    say(f"\nThe demo took {time.monotonic() - began:.0f} s.")


def _prepare(provider: str) -> None:
    """What is expensive, side by side: compilers use the cores while downloads use the network."""
    if provider != "native":
        builds.helm()
        return
    builds.packages()
    with step("make what survives for later runs: Kubernetes, helm, vLLM, images", may_take="12 min the first time"):
        compiled: list[Callable[[], object]] = [builds.kube, builds.pause, builds.helm]
        downloaded: list[Callable[[], object]] = [engine.environment, images.build]
        with ThreadPoolExecutor() as pool:
            for job in [pool.submit(_make, each) for each in (compiled, downloaded)]:
                job.result()


def _make(each: list[Callable[[], object]]) -> None:
    for make in each:
        make()


def _operator(cluster: Cluster) -> None:
    repository, _, tag = images.OPERATOR.rpartition(":")
    image = {"repository": repository, "tag": tag, "pullPolicy": "Never"}
    sets = [word for key, value in image.items() for word in ("--set", f"image.{key}={value}")]
    where = ["--namespace", OPERATOR_NAMESPACE, "--create-namespace", "--wait", "--timeout", "3m"]
    with step(f"helm upgrade --install {RELEASE} charts/epd-operator -n {OPERATOR_NAMESPACE} --wait", may_take="20 s"):
        try:
            cluster.helm("upgrade", "--install", RELEASE, CHART, *where, *sets)
        except HarnessError as error:
            raise HarnessError(f"{error}\n{cluster.describe(OPERATOR_NAMESPACE)}") from error


def _example(cluster: Cluster) -> str:
    with step(f"kubectl apply -n {NAMESPACE} -f {EXAMPLE.relative_to(paths.REPO)}, with the model on a claim"):
        metadata = {"name": NAMESPACE, "labels": RESTRICTED}
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        cluster.model_claim(NAMESPACE)
        cluster.kubectl("apply", "-n", NAMESPACE, "-f", EXAMPLE)
    kinds = [each for each in yaml.safe_load_all(EXAMPLE.read_text()) if each["kind"] == "EPDDeployment"]
    return str(kinds[0]["metadata"]["name"])


def _ready(cluster: Cluster, name: str) -> None:
    """Prints conditions as they change, until Ready; not Reconciling, which says what Ready says."""
    shown: dict[str, str] = {}
    deadline = time.monotonic() + READY_SECONDS
    with step(f"wait until {name} is Ready", may_take="3 min"):
        while True:
            object_ = cluster.get("epd", name, "-n", NAMESPACE)
            conditions = {c["type"]: c for c in object_.get("status", {}).get("conditions", [])}
            for kind, condition in conditions.items():
                line = f"{kind}={condition['status']} {condition.get('reason', '')}: {condition.get('message', '')}"
                if kind != "Reconciling" and shown.get(kind) != line:
                    say(f"    {line.rstrip(': ')}")
                    shown[kind] = line
            ready = conditions.get("Ready", {})
            current = ready.get("observedGeneration") == object_["metadata"]["generation"]
            if ready.get("status") == "True" and current:
                break
            if time.monotonic() > deadline:
                raise HarnessError(f"{name} is not Ready after {READY_SECONDS} s\n{cluster.describe(NAMESPACE)}")
            time.sleep(1)
    say(cluster.kubectl("get", "epd", "-n", NAMESPACE).rstrip())


def _question(cluster: Cluster, name: str) -> None:
    port = cluster.get("service", name, "-n", NAMESPACE)["spec"]["ports"][0]["port"]
    with cluster.service_url(NAMESPACE, name, port=port) as url:
        request = chat.body([chat.picture(COLOUR)])
        with step(f"POST {url}/v1/chat/completions: a {COLOUR} picture, {chat.QUESTIONS[0]!r}"):
            answer = chat.post(url, request)
    if answer.status != 200:
        raise HarnessError(f"{answer.status}: {answer.text}\n{cluster.describe(NAMESPACE)}")
    say(f"\n  {chat.QUESTIONS[0]}?  ->  {answer.text}\n")
    say(f"  encoded by   {', '.join(answer.encoders) or 'the prefill side itself: see x-epd-encode in docs/proxy.md'}")
    say(f"  answered by  {answer.prefill}")
    say(f"  model        {answer.model_version}")
    object_ = cluster.get("epd", name, "-n", NAMESPACE)
    for entry in _entries(cluster, object_, answer):
        say(f"  entry        {entry}")
    sample = Path(cluster.kubeconfig).parent / "question.json"
    sample.write_text(json.dumps(request))
    say("\nWhat to try next:")
    say(f"  export KUBECONFIG={cluster.kubeconfig} PATH={Path(paths.tool('kubectl')).parent}:$PATH")
    say(f"  kubectl get epd,pods -n {NAMESPACE}")
    say(f"  kubectl describe epd {name} -n {NAMESPACE}")
    if cluster.provider == "native":
        say(f"  curl -i {url}/v1/chat/completions -H 'Content-Type: application/json' -d @{sample}")
    say("  make demo-down")


def _entries(cluster: Cluster, object_: Any, answer: chat.Answer) -> list[str]:
    """The files on the claim that hold what this request's encoders wrote, by claim and path."""
    claim = object_.get("status", {}).get("encoderCache", {}).get("claim")
    if claim is None or cluster.volumes is None:
        return []
    folder = cluster.claim_folder(NAMESPACE, claim)
    found = [file for item in answer.items for file in folder.glob(f"{answer.model_version}/{item}*/*.safetensors")]
    return [f"claim {claim}: {file.relative_to(folder)} ({file.stat().st_size} bytes)" for file in found]
