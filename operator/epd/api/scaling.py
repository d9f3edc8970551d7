"""Who sets the number of pods of a role or of the proxy. Shapes only."""

from __future__ import annotations

from enum import StrEnum

from epd.api.fields import ApiModel


class ScalingMode(StrEnum):
    """Who sets the number of replicas."""

    STATIC = "Static"
    EXTERNAL = "External"


class Scaling(ApiModel):
    """Who sets the number of replicas."""

    mode: ScalingMode = ScalingMode.STATIC
    """Static: `replicas` here. External: an autoscaler that points at the Deployment, such as KEDA."""
