"""What exists, as frozen descriptions that validate themselves: host, accelerator, workload, profile, pipeline."""
