"""epd-operator: vLLM's encoder, prefill and decode stages as separate Kubernetes workloads."""

__version__ = "0.1.0"
