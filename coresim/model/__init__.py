"""Frozen descriptions that validate themselves: host, accelerator, workload, profile, pipeline."""
