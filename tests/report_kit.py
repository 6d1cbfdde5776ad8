"""A small job, of which tests of reports ask all that a report shows."""

TABLES = {
    "workload": {"batch_size": 8, "preprocess": "4 ms", "fetch": "1 ms", "consumer": "1 ms", "batch_bytes": 1e6},
    "accelerator": {"step": "12 ms", "launch": "1 ms"},
    "host": {"cores": 2, "threads_per_core": 2, "shm_bytes": 1e6},
}
