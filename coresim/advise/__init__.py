"""From a scenario to advice: sweeps, the recommendation, the verdict."""
