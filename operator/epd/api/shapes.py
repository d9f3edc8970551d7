"""Schemas of Kubernetes' own types, as far as the API embeds them (k8s.io/api core/v1).

Plain structural OpenAPI data; nothing here parses or decides. Full pod and claim schemas would make the
CustomResourceDefinition larger than 1 MB, so these are the fields that make sense here.
"""

from __future__ import annotations

from typing import Any, Final

from epd.api.quantity import QUANTITY_PATTERN

Schema = dict[str, Any]

PRESERVED: Final[Schema] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _string(description: str, /, *, limit: int = 253, **more: Any) -> Schema:
    return {"type": "string", "maxLength": limit, "description": description, **more}


def _strings(description: str, /, *, limit: int = 1024, count: int = 64) -> Schema:
    return {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": limit},
        "maxProperties": count,
        "description": description,
    }


def _object(description: str, properties: Schema, /, *, required: tuple[str, ...] = (), atomic: bool = False) -> Schema:
    schema: Schema = {"type": "object", "description": description, "properties": properties}
    if required:
        schema["required"] = list(required)
    if atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


QUANTITY: Final[Schema] = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": QUANTITY_PATTERN,
    "maxLength": 32,
}

INT_OR_PERCENT: Final[Schema] = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": "^(100|[1-9]?[0-9])%$",
    "maxLength": 4,
}

RESOURCE_LIST: Final[Schema] = {"type": "object", "additionalProperties": QUANTITY, "maxProperties": 32}

_METADATA: Final = _object(
    "Labels and annotations to add.",
    {
        "labels": _strings(
            "Labels to add. The operator's own (`epd.dev/…`, `app.kubernetes.io/…`) are refused.", limit=63
        ),
        "annotations": _strings("Annotations to add.", limit=65536),
    },
)

POD_TEMPLATE: Final = {
    "type": "object",
    "properties": {
        "metadata": _METADATA,
        "spec": PRESERVED | {"description": "Parts of a PodSpec, merged as `kubectl patch --type=strategic` does."},
    },
}

CLAIM_METADATA: Final = _METADATA

_LABEL_SELECTOR: Final = _object(
    "Binds to a PersistentVolume with these labels.",
    {
        "matchLabels": _strings("Labels that the volume must have.", limit=63),
        "matchExpressions": {
            "type": "array",
            "maxItems": 16,
            "x-kubernetes-list-type": "atomic",
            "description": "Requirements on the volume's labels.",
            "items": _object(
                "One requirement.",
                {
                    "key": _string("Label key.", limit=317),
                    "operator": _string(
                        "How key and values relate.", limit=16, enum=["In", "NotIn", "Exists", "DoesNotExist"]
                    ),
                    "values": {
                        "type": "array",
                        "maxItems": 16,
                        "x-kubernetes-list-type": "atomic",
                        "description": "Label values.",
                        "items": {"type": "string", "maxLength": 63},
                    },
                },
                required=("key", "operator"),
            ),
        },
    },
    atomic=True,
)

_REFERENCE: Final[Schema] = {
    "apiGroup": _string("API group of the object, for example `snapshot.storage.k8s.io`."),
    "kind": _string("Kind of the object, for example `VolumeSnapshot`."),
    "name": _string("Name of the object."),
}

CLAIM_SPEC: Final = _object(
    "Spec of the claim, as in a PersistentVolumeClaim.",
    {
        "storageClassName": _string("Class of the storage, for example `nfs`. Absent: the cluster's default class."),
        "accessModes": {
            "type": "array",
            "minItems": 1,
            "maxItems": 4,
            "x-kubernetes-list-type": "atomic",
            "description": "ReadWriteMany, the default, for pods on several nodes; ReadWriteOnce puts all on one.",
            "items": {
                "type": "string",
                "maxLength": 32,
                "enum": ["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"],
            },
        },
        "resources": _object(
            "Size of the claim.",
            {
                "requests": _object(
                    "What is asked for.",
                    {"storage": QUANTITY | {"description": "Size, for example `100Gi`. It can grow, never shrink."}},
                    required=("storage",),
                ),
                "limits": _object("Most that may be given.", {"storage": QUANTITY | {"description": "Size."}}),
            },
            required=("requests",),
        ),
        "volumeName": _string("Name of the PersistentVolume to bind to."),
        "selector": _LABEL_SELECTOR,
        "volumeMode": _string("Only file systems can hold a cache.", limit=16, enum=["Filesystem"]),
        "volumeAttributesClassName": _string("Class of the volume's mutable attributes."),
        "dataSource": _object("Snapshot or claim to start from.", _REFERENCE, required=("kind", "name"), atomic=True),
        "dataSourceRef": _object(
            "Object to start from.",
            _REFERENCE | {"namespace": _string("Namespace of the object.")},
            required=("kind", "name"),
            atomic=True,
        ),
    },
    required=("resources",),
)

_ID: Final[Schema] = {"type": "integer", "format": "int64", "minimum": 0, "maximum": 2**31 - 1}

POD_SECURITY_CONTEXT: Final[Schema] = {
    "type": "object",
    # one value as a whole: given {runAsNonRoot: true}, the platform assigns the ids
    "x-kubernetes-map-type": "atomic",
    "properties": {
        "runAsNonRoot": {"type": "boolean", "description": "The kubelet refuses to start a container as root."},
        "runAsUser": _ID | {"description": "User id of every process."},
        "runAsGroup": _ID | {"description": "Primary group id of every process."},
        "fsGroup": _ID | {"description": "Group that owns mounted volumes, where the volume's driver can do that."},
        "fsGroupChangePolicy": _string(
            "OnRootMismatch spares walking millions of files at every start.",
            limit=16,
            enum=["Always", "OnRootMismatch"],
        ),
        "supplementalGroups": {
            "type": "array",
            "maxItems": 32,
            "x-kubernetes-list-type": "atomic",
            "items": _ID,
            "description": "Further group ids, for example that of an NFS export.",
        },
        "supplementalGroupsPolicy": _string(
            "Whether groups of the image count too.", limit=16, enum=["Merge", "Strict"]
        ),
        "seLinuxOptions": _object(
            "SELinux label of the containers.",
            {part: _string(f"SELinux {part} label.") for part in ("level", "role", "type", "user")},
        ),
        "seccompProfile": _object(
            "Seccomp profile. Absent: RuntimeDefault, as the restricted Pod Security Standard asks.",
            {
                "type": _string("Kind of profile.", limit=16, enum=["RuntimeDefault", "Localhost", "Unconfined"]),
                "localhostProfile": _string("File of a Localhost profile."),
            },
            required=("type",),
        ),
    },
}


def _key_ref(kind: str) -> Schema:
    return _object(
        f"A key of a {kind} in the same namespace.",
        {
            "name": _string(f"Name of the {kind}."),
            "key": _string("Key in it."),
            "optional": {"type": "boolean", "description": "Whether it may be missing."},
        },
        required=("name", "key"),
        atomic=True,
    )


ENV_VAR_SOURCE: Final = {
    "type": "object",
    "properties": {
        "secretKeyRef": _key_ref("Secret"),
        "configMapKeyRef": _key_ref("ConfigMap"),
        "fieldRef": _object(
            "A field of the pod.",
            {
                "apiVersion": _string("Version of the path's schema.", limit=16),
                "fieldPath": _string("Path, for example `status.podIP`."),
            },
            required=("fieldPath",),
            atomic=True,
        ),
        "resourceFieldRef": _object(
            "A resource of a container.",
            {
                "containerName": _string("Name of the container."),
                "resource": _string("Resource, for example `limits.memory`."),
                "divisor": QUANTITY | {"description": "Unit of the value."},
            },
            required=("resource",),
            atomic=True,
        ),
    },
}

# int or object: a structural schema cannot say so, so the operator checks the values (epd.api.validation)
_MEDIA_LIMIT: Final[Schema] = {"x-kubernetes-preserve-unknown-fields": True}

MEDIA_LIMITS: Final = {
    "type": "object",
    "properties": {
        kind: _MEDIA_LIMIT
        | {"description": f"Most {kind} items in one request: a number, or vLLM's object form such as `{{count: 1}}`."}
        for kind in ("image", "video", "audio")
    },
}
