"""Combinations of values that every template must bear."""

from __future__ import annotations

from typing import Any

DIGEST = "sha256:" + "0123456789abcdef" * 4
DEFAULT: dict[str, Any] = {}
EVERYTHING: dict[str, Any] = {
    "image": {
        "repository": "registry.example.com:5000/team/epd",
        "tag": "edge",
        "digest": DIGEST,
        "pullPolicy": "Always",
        "pullSecrets": [{"name": "registry"}],
    },
    "nameOverride": "epd",
    "commonLabels": {"team": "serving"},
    "watchNamespaces": ["team-a", "team-b"],
    "resyncInterval": "90s",
    "logLevel": "debug",
    "logFormat": "json",
    "crds": {"enabled": True, "keep": False},
    "serviceAccount": {"name": "epd", "annotations": {"example.com/role": "none"}},
    "podSecurityContext": {"fsGroup": 65532},
    "terminationGracePeriodSeconds": 60,
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "control-plane", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]
            }
        }
    },
    "podAnnotations": {"example.com/checksum": "1"},
    "podLabels": {"example.com/mesh": "off"},
    "metrics": {
        "service": {"annotations": {"prometheus.io/scrape": "true"}},
        "serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
    },
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
    },
}
MATRIX: dict[str, dict[str, Any]] = {
    "default": DEFAULT,
    "everything": EVERYTHING,
    "namespaced": {"watchNamespaces": ["team-a"]},
    "without CRDs": {"crds": {"enabled": False}},
    "CRDs go with the release": {"crds": {"keep": False}},
    "foreign RBAC": {"rbac": {"create": False, "aggregateToUserRoles": False}},
    "foreign ServiceAccount": {"serviceAccount": {"create": False, "name": "mine"}},
    "full name": {"fullnameOverride": "epd"},
    "a full name of 63 characters": {"fullnameOverride": "e" * 63},
    "closed ports": {"networkPolicy": {"enabled": True}},
    "assigned user": {"podSecurityContext": {"runAsUser": None, "runAsGroup": None}},
    "pinned by digest": {"image": {"digest": DIGEST}},
}
