"""Turn a scenario into advice: sweeps, the recommendation, the verdict."""
