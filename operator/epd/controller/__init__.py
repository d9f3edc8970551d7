"""The operator process: watches, reconciles, reports."""
