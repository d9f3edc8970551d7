"""The process that deletes stale encoder-cache data on one claim. Never writes an entry, never leaves its root."""
