"""The engine's environment: writable places, no telemetry, offline switches, our connector, the runner on CPU. Pure."""

from __future__ import annotations

from typing import Any, Final

from epd.api.names import CONNECTOR_PATH, Role
from epd.api.types import ConnectorKind, Device, ModelSource, Spec
from epd.topology.containers import env_var
from epd.topology.roles import device_of, role_spec_of
from epd.topology.storage import HF_CACHE_PATH, HOME_PATH, model_claim, offline

_PLACES: Final = {
    # vLLM's images are made for root: another uid has no home and no name there.
    "HOME": HOME_PATH,
    "USER": "epd",
    "LOGNAME": "epd",  # torch names its cache after the user and fails for a uid that has no name
    "VLLM_CACHE_ROOT": f"{HOME_PATH}/.cache/vllm",
    "VLLM_CONFIG_ROOT": f"{HOME_PATH}/.config/vllm",
    "TRITON_CACHE_DIR": f"{HOME_PATH}/.cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{HOME_PATH}/.cache/torchinductor",
    "XDG_CACHE_HOME": f"{HOME_PATH}/.cache",
    "NUMBA_CACHE_DIR": f"{HOME_PATH}/.cache/numba",  # audio models; by default beside the read-only package
}
_TELEMETRY: Final = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_MEDIA: Final = {"VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0"}
"""An allowed host could send the engine to any address in the cluster (`vllm/envs.py`). `env` can allow it again."""
_OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_CPU: Final = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
"""On a CPU, runner V2 would build no encoder-only runner (`vllm/v1/worker/cpu_worker.py`)."""

_TLS: Final = {"WATCHFILES_FORCE_POLLING": "1"}
"""vLLM follows its certificate by inotify (`SSLCertRefresher`), which loses a Secret's files for good at their first
change: the kubelet replaces the folder that they lie in. Asked for by name every 300 ms, they are found."""

_MODULE_PATH: Final = "PYTHONPATH"


def _hub(spec: Spec) -> list[dict[str, Any]]:
    if model_claim(spec) is not None:
        return []
    variables: list[dict[str, Any]] = [{"name": "HF_HOME", "value": HF_CACHE_PATH}]
    hub = (spec.model.source or ModelSource()).hugging_face
    if hub and hub.token_secret_ref:
        reference = {"name": hub.token_secret_ref.name, "key": hub.token_secret_ref.key}
        variables.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}})
    return variables


def _side_channel(spec: Spec) -> list[dict[str, Any]]:
    """The address at which a custom connector answers its peers; vLLM's default is localhost, wrong in every pod."""
    if spec.encoder_cache is None or spec.encoder_cache.connector is not ConnectorKind.CUSTOM:
        return []
    return [{"name": "VLLM_EC_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


def _pod_uid(spec: Spec) -> list[dict[str, Any]]:
    """Names what the Managed connector holds on the claim, so that the collector knows whose it is."""
    if not _is_managed(spec):
        return []
    return [{"name": "EPD_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]


def _is_managed(spec: Spec) -> bool:
    return spec.encoder_cache is not None and spec.encoder_cache.connector is ConnectorKind.MANAGED


def _with_connector(variables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Our connector's path before the user's own, at its place: it may refer to variables before it."""
    given = next((variable.get("value", "") for variable in variables if variable["name"] == _MODULE_PATH), "")
    ours = {"name": _MODULE_PATH, "value": f"{CONNECTOR_PATH}:{given}" if given else CONNECTOR_PATH}
    if not any(variable["name"] == _MODULE_PATH for variable in variables):
        return [*variables, ours]
    return [ours if variable["name"] == _MODULE_PATH else variable for variable in variables]


def engine_env(spec: Spec, role: Role) -> list[dict[str, Any]]:
    """Return the container's `env` for one role, each name once.

    A name given again takes the later value and keeps its place, in the order operator, engine, role: variables refer
    to earlier ones. Only to the module path the Managed connector's is added in front.
    """
    plain = _PLACES | _TELEMETRY | _MEDIA | (_OFFLINE if offline(spec) else {}) | (_TLS if spec.engine.tls else {})
    if device_of(spec, role) is Device.CPU:
        plain |= _CPU
    given = [*spec.engine.env, *role_spec_of(spec, role).env]
    variables = [{"name": name, "value": value} for name, value in plain.items()]
    variables += [*_hub(spec), *_side_channel(spec), *_pod_uid(spec), *map(env_var, given)]
    unique = list({variable["name"]: variable for variable in variables}.values())
    return _with_connector(unique) if _is_managed(spec) else unique
