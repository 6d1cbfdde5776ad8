"""Bounds and closed forms: from a `Pipeline` alone, with no simulation."""
