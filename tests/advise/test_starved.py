"""Settings that are far from the target, in a study of several jobs or targets."""

from __future__ import annotations

from dataclasses import replace

from advise_kit import job

from coresim.advise.candidates import JobSetting
from coresim.advise.starved import predicted, short_of_cores
from coresim.advise.sweep import Study
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate


def test_one_study_of_two_jobs_keeps_them_apart() -> None:
    # The times of the second vary, so its runs are longer.
    shared = Study(simulate, Plan(target=0.05))
    for scenario in (job(8, "5 ms", 0, "10 ms"), job(8, "5 ms", 4, "10 ms"), job(8, "9 ms", 4, "10 ms")):
        own = Study(simulate, Plan(target=0.05))
        setting = JobSetting(scenario, 2, 4, 6, 2)
        assert predicted(setting, shared) == predicted(setting, own)
        for cores in (1, 4):
            assert short_of_cores(scenario, 2, cores, shared) == short_of_cores(scenario, 2, cores, own)


def test_one_study_with_two_targets_keeps_their_runs_apart() -> None:
    scenario, shared = job(8, "9 ms", 2, "10 ms"), Study(simulate, Plan(target=0.05))
    closer = replace(shared, plan=Plan(target=None))
    near, far = (short_of_cores(scenario, 2, 4, study)[0].estimate for study in (closer, shared))
    assert near.replications > far.replications
