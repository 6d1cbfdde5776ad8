"""Comparing two profiles: real changes against noise, the cores that they cost, and the exit code."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from coresim.advise.compare import BANDWIDTH, TOTAL, applied, compare, find_changes, pooled
from coresim.advise.difference import Change
from coresim.advise.sweep import Study
from coresim.cli.main import main
from coresim.errors import InputError
from coresim.model.host import CoreTerm, HostFacts
from coresim.model.measurement import Measurement
from coresim.model.profile import AcceleratorSource, Profile, Provenance, load_document
from coresim.report.compare import gate_section
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate
from coresim.stats import t_quantile

DECODE, TRANSFORM = "prepare.step.decode", "prepare.step.transform"
STUDY = Study(simulate, Plan(steps=120, least=2, most=2, inputs=0))


def profile(decode=4e-3, spread=0.01, step=0.1, triad=20e9, seed=1, processes=3, noise=True, **changes) -> Profile:
    """A made-up profile: ``spread`` is the relative standard deviation between its fresh processes."""
    random_ = random.Random(seed)

    def values(mean: float, count: int = processes, many: int = 20) -> tuple[tuple[float, ...], ...]:
        factors = [random_.gauss(1.0, spread) if noise else 1.0 for _ in range(count)]
        return tuple((mean * factor,) * many for factor in factors)

    steps = values(decode), values(1e-3)
    sample = tuple(tuple(map(sum, zip(*both, strict=True))) for both in zip(*steps, strict=True))
    measurements = (
        Measurement(TOTAL, "s/sample", sample, "timed"),
        Measurement(DECODE, "s/sample", steps[0], "timed"),
        Measurement(TRANSFORM, "s/sample", steps[1], "timed"),
        Measurement("prepare.collate", "s/batch", values(2e-3), "timed"),
        Measurement(f"{BANDWIDTH}1", "B/s", ((1e10,),), "timed"),
        Measurement(f"{BANDWIDTH}4", "B/s", ((triad,),), "timed"),
    )
    made = Profile(
        workload="job", loader="a loader", batch_size=64, bytes_per_batch=1000, arrays_per_batch=1,
        host=HostFacts((CoreTerm("physical", 4.0, "read"),), cpu_model="X"),
        accelerator=AcceleratorSource("given", "as given", 0.0, step),
        provenance=Provenance("0", "test", "2026-01-01", "f", torch_version="2"),
        measurements=measurements,
    )  # fmt: skip
    return replace(made, **changes)


def change(old: Profile, new: Profile, name: str) -> Change:
    return next(found for found in find_changes(old, new) if found.name == name)


def read(found: Profile):
    return found.scenario()


def test_two_profiles_of_one_truth_differ_by_noise_only() -> None:
    # 5 % of comparisons may be wrong; of 200 a binomial's 99.9 % point is 21.
    wrong = sum(any(c.is_real for c in find_changes(profile(seed=n), profile(seed=1000 + n))) for n in range(200))
    assert wrong <= 21


def test_a_change_well_over_the_spread_is_found_and_one_below_it_is_not() -> None:
    found = [change(profile(seed=n), profile(decode=4.8e-3, seed=n + 500), DECODE) for n in range(40)]
    assert sum(c.is_real for c in found) >= 38
    assert all(c.low < 0.2 < c.high for c in found[:5])
    missed = [change(profile(seed=n), profile(decode=4.02e-3, seed=n + 500), DECODE) for n in range(40)]
    assert sum(c.is_real for c in missed) <= 3


def test_the_interval_by_hand() -> None:
    # log means 0 and 0.1, one value each side +-0.01: pooled variance 2e-4, 2 degrees, one comparison of n quantities.
    def of(*logs: float) -> Measurement:
        return Measurement("prepare.collate", "s/batch", tuple((2.718281828459045**x,) for x in logs), "timed")

    sample = Measurement(TOTAL, "s/sample", ((1e-3,), (1e-3,)), "timed")
    one, two = (profile(measurements=(sample, of(*logs))) for logs in ((-0.01, 0.01), (0.09, 0.11)))
    found = change(one, two, "prepare.collate")
    # Three quantities (a sample and the given step time too): level 98.33 %. Of two degrees of freedom Student's
    # quantile at p is (2 p - 1) / sqrt(2 p (1 - p)): 7.6488. Half-width t * sqrt(2e-4).
    half = 7.64884 * 2e-4**0.5
    assert found.low == pytest.approx(2.718281828 ** (0.1 - half) - 1, rel=1e-4)
    assert found.high == pytest.approx(2.718281828 ** (0.1 + half) - 1, rel=1e-4)


def test_a_bandwidth_of_one_process_is_judged_by_the_spread_of_the_preparation() -> None:
    name = f"{BANDWIDTH}4"
    assert change(profile(spread=0.003), profile(spread=0.003, triad=15e9, seed=2), name).is_real
    assert not change(profile(spread=0.1), profile(spread=0.1, triad=15e9, seed=2), name).is_real
    lone = change(profile(processes=1), profile(processes=1, triad=15e9), name)
    assert not lone.is_real and lone.high == float("inf")


def test_worse_is_slower_or_less_bandwidth() -> None:
    pair = profile(noise=False), profile(noise=False, triad=16e9, step=0.05)
    assert change(*pair, f"{BANDWIDTH}4").loss == pytest.approx(0.25)
    assert change(*pair, "accelerator.step").loss == pytest.approx(-0.5)


def test_a_real_change_is_applied_alone_and_moves_the_cores() -> None:
    old, new = profile(noise=False), profile(noise=False, decode=6e-3)
    found = compare(old, new, read, STUDY)
    by_name = {c.name: c for c in found.changes}
    assert {c.name for c in found.real} == {TOTAL, DECODE}
    # CPU per batch 64 x 5 ms over a step of 100 ms: 3.04 cores at 5 % idle and the trainer's own; with 7 ms, 4.28.
    assert 4 <= found.cores_old < found.cores_new <= found.cores_old + 3
    assert by_name[DECODE].cores == found.cores_new
    assert by_name[TRANSFORM].cores is None
    # A step that changes alone changes the sample by as much; all of the sample, every step in proportion.
    scaled = applied(old, new, [by_name[DECODE]])
    assert scaled[DECODE].mean == pytest.approx(6e-3) and scaled[TRANSFORM].mean == 1e-3
    assert scaled[TOTAL].mean == pytest.approx(7e-3)
    whole = applied(old, new, [by_name[TOTAL]])
    assert [whole[name].mean for name in (TOTAL, DECODE, TRANSFORM)] == pytest.approx([7e-3, 5.6e-3, 1.4e-3])


def test_with_a_step_goes_what_it_takes_beside_busy_cores_and_on_an_idle_device() -> None:
    def timed(step: float) -> Profile:
        times = {"step": step, "step.alone": 1.25 * step, "step.busy.2": 1.5 * step, "launch": 0.01}
        more = tuple(
            Measurement(f"accelerator.{name}", "s/step", ((t,) * 9,) * 3, "made up") for name, t in times.items()
        )
        made = profile(noise=False)
        source = replace(made.accelerator, kind="measured", step_time_s=None)
        return replace(made, accelerator=source, measurements=(*made.measurements, *more))

    old, new = timed(0.1), timed(0.08)
    found = applied(old, new, [change(old, new, "accelerator.step")])
    known = {name: found[f"accelerator.{name}"].mean for name in ("step", "step.alone", "step.busy.2", "launch")}
    assert known == pytest.approx({"step": 0.08, "step.alone": 0.1, "step.busy.2": 0.12, "launch": 0.01})


def test_noise_moves_no_cores() -> None:
    found = compare(profile(spread=0.2), profile(spread=0.2, seed=7), read, STUDY)
    assert not found.real and found.cores_new == found.cores_old and not found.losses_over(0.0)


def test_bandwidth_brings_the_new_speeds() -> None:
    old = profile(noise=False, speed=(1.0, 1.0))
    new = profile(noise=False, triad=10e9, speed=(1.0, 0.5), speed_uncertainty=(0.1,))
    [found] = [c for c in find_changes(old, new) if c.is_real]
    assert applied(old, new, [found]).speed == (1.0, 0.5)
    assert applied(old, new, [found])[found.name].mean == 20e9


def test_profiles_of_two_jobs_are_refused_or_pointed_out() -> None:
    with pytest.raises(InputError, match="batch_size: 64 in the old profile, 32 in the new"):
        compare(profile(), profile(batch_size=32), read, STUDY)
    other = profile(workload="another", host=HostFacts((CoreTerm("physical", 8.0, "read"),), cpu_model="Y"))
    warnings = compare(profile(), other, read, STUDY).warnings
    assert any("X and Y" in line for line in warnings) and any("'another'" in line for line in warnings)


def test_a_loader_that_ran_with_smaller_batches_is_carried_to_the_batch_of_both() -> None:
    light = profile(noise=False, measured_batch=16)
    found = compare(profile(noise=False), replace(light, measurements=quarter(light)), read, STUDY)
    assert not found.real and "the loader ran with batches of 64 and 16" in found.warnings[0]


def quarter(found: Profile) -> tuple[Measurement, ...]:
    """Its measurements with a collation of a quarter of the batch."""
    return tuple(one.scaled(0.25 if one.name == "prepare.collate" else 1.0) for one in found.measurements)


def test_the_verb_and_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / name) for name in ("old.json", "new.json")]
    profile(noise=False).save(paths[0])
    profile(noise=False, decode=4.72e-3).save(paths[1])
    assert main(["compare", *paths]) == 0
    out = capsys.readouterr().out
    assert "prepare.step.decode +18%:" in out and ", was " in out
    assert main(["compare", *paths, "--fail-over", "20%"]) == 0
    assert "Passed" in capsys.readouterr().out
    assert main(["compare", *paths, "--fail-over", "10%"]) == 6
    assert "Failed" in capsys.readouterr().out
    assert main(["compare", *reversed(paths), "--fail-over", "10%"]) == 0
    capsys.readouterr()
    assert main(["compare", *paths, "--fail-over", "0.1", "--json"]) == 6
    document = json.loads(capsys.readouterr().out)
    assert set(document["failed"]) == {TOTAL, DECODE} and document["cores_per_gpu_old"] >= 4
    assert main(["compare", *paths, "--set", "target.gpu_idle=0.3"]) == 0
    assert "idle within 30.0 %" in capsys.readouterr().out
    assert main(["compare", paths[0], str(tmp_path / "none.json")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_an_interval_that_reaches_over_the_limit_is_not_a_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A decode that costs half as much again, in repeats that differ by a factor of two.
    of = {"old": (0.5, 1.0, 2.0), "new": (0.8, 1.5, 2.8)}
    paths = {}
    for name, values in of.items():
        decode, sample = (
            Measurement(what, "s/sample", tuple((1e-3 * v,) * 5 for v in values), "timed") for what in (DECODE, TOTAL)
        )
        paths[name] = str(tmp_path / f"{name}.json")
        profile(measurements=(sample, decode), seed=1).save(paths[name])
    words = ["compare", paths["old"], paths["new"], "--fail-over", "10%"]
    assert main(words) == 7
    out = capsys.readouterr().out
    assert "Cannot tell at 10 %:\n  prepare.sample may be worse by" in out and "Passed" not in out
    assert "processes a side would tell (3 now)" in out and "--also-old" in out
    assert main([*words, "--json"]) == 7
    document = json.loads(capsys.readouterr().out)
    assert document["failed"] == [] and [c["name"] for c in document["not_told"]] == [TOTAL, DECODE]
    # Were it what it is now, as many processes as it says do tell, and one fewer does not.
    [needed] = {c["processes_to_tell"] for c in document["not_told"]}
    found = change(*(load_document(path) for path in paths.values()), DECODE)

    def half(count: int) -> float:
        return t_quantile(0.5 + found.level / 2, 2 * count - 2) * found.deviation * (2 / count) ** 0.5

    assert half(needed) < math.log(found.new / found.old) <= half(needed - 1)
    # And profiles that are taken together are such repeats.
    more = [word for side in of for _ in range(needed // 3) for word in (f"--also-{side}", paths[side])]
    assert main([*words, *more]) == 6
    assert "Failed at 10 %: prepare.sample" in capsys.readouterr().out
    assert main(["compare", paths["old"], paths["old"], "--fail-over", "1000%"]) == 0
    assert "Passed: nothing is worse by more than 1e+03 %" in capsys.readouterr().out


def test_profiles_that_are_taken_together_are_of_one_job() -> None:
    one, two = profile(), profile(seed=2)
    assert pooled([one, two])[DECODE].values == one[DECODE].values + two[DECODE].values
    with pytest.raises(InputError, match="batch_size: 64 and 32 in profiles that are taken together"):
        pooled([one, profile(batch_size=32)])
    # Where a loader ran with smaller batches, its times are carried first.
    assert pooled([one, profile(measured_batch=16)])["prepare.collate"].mean == pytest.approx(
        2.5 * one["prepare.collate"].mean, rel=0.05
    )


def test_what_would_tell_is_said_where_no_spread_is_known() -> None:
    found = compare(profile(processes=1), profile(processes=1, seed=2), read, STUDY)
    assert found.untold(0.1) and all(c.processes_to_tell(0.1) is None for c in found.untold(0.1))
    assert "one process has no spread" in gate_section(found, 0.1).words


def test_what_compare_takes_is_said(tmp_path, capsys):
    path = tmp_path / "job.toml"
    path.write_text('[workload]\nbatch_size = 8\npreprocess = "5 ms"\n[accelerator]\nstep = "60 ms"\n')
    assert main(["compare", str(path), str(path)]) == 2
    assert "compare takes two profiles" in capsys.readouterr().err
