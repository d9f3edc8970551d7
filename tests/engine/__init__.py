"""The Managed connector in vLLM's real scheduler and engine core; only the model and its workers are pretended."""
