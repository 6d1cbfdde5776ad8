"""Remedies: what they change, whether they help where they should, and what is said first."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from made_up import profile

from coresim.advise.decide import Decision, decide
from coresim.advise.remedies import PROVENANCES, REMEDIES
from coresim.advise.sweep import Point, Study
from coresim.advise.what_if import remedies_named, what_if
from coresim.cli.main import build_parser, main
from coresim.errors import InputError
from coresim.model.option import Option
from coresim.model.scenario import Scenario, read_scenario
from coresim.report.remedies import conclusion, what_if_document, what_if_text
from coresim.report.words import WIDTH
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate

STUDY = Study(simulate, Plan(steps=120, least=3, most=3, inputs=0))
DECODING = {"faster-decoder", "raw-format", "offline-resize", "gpu-decode"}


def job(cores: int = 4, step: str = "30 ms", **workload: object) -> Scenario:
    work = {"batch_size": 32, "preprocess": "6 ms", "batch_bytes": 19e6} | workload
    return read_scenario({"workload": work, "accelerator": {"step": step}, "host": {"cores": cores}})


#: That option 2 is recommended, and nothing else.
KNOWN = Decision(job(), Point(Option.OVERLAPPED, 1, 1, 2, None), (), None)  # type: ignore[arg-type]


def by_name(found: object) -> dict:
    return {outcome.remedy.name: outcome for outcome in found.outcomes}  # type: ignore[attr-defined]


def test_too_few_cores_are_cured_by_cores_and_by_what_spares_them():
    found = what_if(job(), STUDY, ["more-cores", "offline", "gpu-transforms", "more-prefetch"])
    names = by_name(found)
    assert found.today.idle > 0.2
    assert found.need_cores
    assert names["more-cores"].idle <= 0.05
    assert names["more-cores"].cores == found.today.minimum_cores[0] > 4
    assert names["offline"].idle < 0.05
    # A buffer cannot cure a rate.
    assert names["more-prefetch"].idle > found.today.idle - 0.02
    assert conclusion(found).startswith("On 4 cores per GPU")


def test_where_storage_binds_the_first_line_says_not_to_buy_cores():
    # Fetching is limited to two at once for all workers: no core helps.
    scenario = read_scenario(
        {
            "workload": {"batch_size": 32, "preprocess": "0.5 ms", "fetch": "10 ms"},
            "accelerator": {"step": "40 ms"},
            "host": {"cores": 8, "storage_streams": 2},
        }
    )
    found = what_if(scenario, STUDY, ["cache-in-ram", "more-workers"])
    assert not found.need_cores
    assert conclusion(found).startswith("Do not buy cores")
    assert by_name(found)["cache-in-ram"].idle < 0.1 < by_name(found)["more-workers"].idle
    assert found.outcomes[0].remedy is not None and found.outcomes[0].remedy.name == "cache-in-ram"


def test_a_job_that_meets_its_target_needs_nothing():
    found = what_if(job(cores=16, step="300 ms"), STUDY, ["more-workers"])
    assert conclusion(found).startswith("Do not buy cores")


def test_a_faster_step_asks_for_more_cores():
    found = what_if(job(), STUDY, ["mixed-precision"])
    low, high = by_name(found)["mixed-precision"].minimum_cores
    assert low is not None and low > found.today.minimum_cores[0]
    assert high is None or high > low


def test_out_of_order_pays_for_heavy_tails():
    tail = {"mean": "6 ms", "cv": 4.0, "distribution": "lognormal"}
    scenario = job(cores=4, step="12 ms", batch_size=4, preprocess=tail)
    scenario = replace(scenario, loader=replace(scenario.loader, workers=4))
    found = what_if(scenario, STUDY, ["out-of-order"])
    assert by_name(found)["out-of-order"].idle < found.today.idle - 0.02


def test_the_jobs_own_workers_are_kept_unless_they_are_the_remedy():
    scenario = read_scenario(job(cores=8).to_dict() | {"loader": {"workers": 2}})
    found = what_if(scenario, STUDY, ["more-workers", "offline"])
    assert found.today.workers == 2
    assert by_name(found)["more-workers"].workers > 2
    assert by_name(found)["offline"].workers == 2


def test_every_assumption_says_its_range_and_spans_an_interval():
    found = what_if(job(), STUDY)
    for outcome in found.outcomes:
        assert outcome.remedy is not None
        if outcome.remedy.provenance == "assumed" and len(outcome.remedy.transforms) > 1:
            assert any(character.isdigit() for character in outcome.remedy.assumptions), outcome.remedy.name
    text = what_if_text(found)
    assert text.splitlines()[2].startswith("remedy")
    assert not re.search(r"[a-z]\.(\n {4}| )[a-z]", text)  # each sentence begins in a capital
    assert all(remedy.name in text for remedy in remedies_named(job()))
    assert json.loads(json.dumps(what_if_document(found)))["today"]["cores_per_gpu"] == 4


def test_remedies_that_change_nothing_do_not_apply():
    names = {remedy.name for remedy in remedies_named(job())}
    assert "cache-in-ram" not in names
    assert "cache-in-ram" in {remedy.name for remedy in remedies_named(job(fetch="2 ms"))}
    with pytest.raises(InputError, match="changes nothing"):
        what_if(job(), STUDY, ["cache-in-ram"])
    with pytest.raises(InputError, match="not known"):
        what_if(job(), STUDY, ["pray"])
    with pytest.raises(InputError, match=r"'more-wokers': not known; use .*, no-gpu; did you mean 'more-workers'\?$"):
        what_if(job(), STUDY, ["more-wokers"])
    assert len({remedy.name for remedy in REMEDIES}) == len(REMEDIES)


def test_an_unknown_remedy_is_refused_before_anything_is_simulated(monkeypatch, tmp_path, capsys):
    def engine(*_):
        raise AssertionError("simulated")

    with pytest.raises(InputError, match="not known"):
        what_if(job(), Study(engine), ["pray"])
    build_parser()  # a verb that is imported meanwhile would keep that engine
    monkeypatch.setattr("coresim.cli.common.engine_named", engine)
    text = '[workload]\nbatch_size = 8\npreprocess = "1 ms"\n[accelerator]\nstep = "9 ms"\n'
    (tmp_path / "job.toml").write_text(text)
    assert main(["whatif", str(tmp_path / "job.toml"), "--remedy", "pray"]) == 2
    assert "pray" in capsys.readouterr().err


def test_every_remedy_that_people_name_has_its_row():
    named = """more-workers more-prefetch more-cores faster-decoder gpu-decode gpu-transforms offline offline-resize
    cache-in-ram no-gpu raw-format larger-batch mixed-precision out-of-order threads remote-workers
    one-library-thread local-nvme"""
    assert set(named.split()) == {remedy.name for remedy in REMEDIES}
    assert {remedy.provenance for remedy in REMEDIES} == {"measured", "recorded", "assumed"}
    for remedy in REMEDIES:
        # What is assumed is a range, and simulated at both ends.
        assert remedy.provenance != "assumed" or (" to " in remedy.assumptions and len(remedy.transforms) == 2), (
            remedy.name
        )


def test_a_set_that_does_not_fit_in_memory_is_not_cached():
    sizes = {"fetch": "5 ms", "sample_bytes": 1e5, "samples_per_epoch": 10**6}
    tables = job(**sizes).to_dict()
    roomy, small = (read_scenario(tables | {"host": {"cores": 4, "memory_bytes": size}}) for size in (200e9, 64e9))
    names = ["cache-in-ram"]
    fits, too_large = what_if(roomy, STUDY, names), what_if(small, STUDY, names)
    assert by_name(fits)["cache-in-ram"].possible and not by_name(too_large)["cache-in-ram"].possible
    assert "Best on these cores: cache-in-ram" in conclusion(fits) and "idle, this job's numbers)" in conclusion(fits)
    assert "Best on" not in conclusion(too_large)
    assert "100 GB of 64 GB, which does NOT fit" in what_if_text(too_large)
    assert "100 GB of 200 GB" in what_if_text(fits)


def test_prices_are_in_the_jobs_own_numbers():
    scenario = job(sample_bytes=1e5, samples_per_epoch=10**6)
    found = by_name(what_if(scenario, STUDY, ["offline", "raw-format", "gpu-decode", "offline-resize"]))
    # 1e6 samples of 19e6 / 32 B and 6 ms.
    assert found["offline"].price.endswith("594 GB, 1.67 CPU hours once")
    assert found["offline-resize"].price.endswith("1.67 CPU hours once")
    assert "540 GB instead of 100 GB" in found["raw-format"].price
    assert "1.6 ms to 9.6 ms of GPU time in each step, 3.2 MB sent to it" in found["gpu-decode"].price
    plain = by_name(what_if(job(), STUDY, ["offline"]))["offline"]
    assert plain.price.endswith("594 GB, 1.67 CPU hours once per million samples")
    # Ninety-six files to measure with are not the set.
    few = by_name(
        what_if(job(sample_bytes=1e5, dataset_bytes=96e5, fetch="9 ms"), STUDY, ["raw-format", "cache-in-ram"])
    )
    assert "540 GB instead of 100 GB per million samples" in few["raw-format"].price
    assert few["cache-in-ram"].price.endswith("100 GB per million samples") and few["cache-in-ram"].possible


def test_without_a_gpu_the_step_takes_the_cores_and_is_never_invented():
    assert "no-gpu" not in {remedy.name for remedy in remedies_named(job())}
    with pytest.raises(InputError, match=r"accelerator\.cpu_step is not known"):
        what_if(job(), STUDY, ["no-gpu"])
    tables = job(cores=4).to_dict()
    tables["accelerator"]["cpu_step"] = "200 ms"
    outcome = by_name(what_if(read_scenario(tables), STUDY, ["no-gpu"]))["no-gpu"]
    # 32 samples of 6 ms on 4 cores, then the step on them.
    assert outcome.throughput == pytest.approx(32 / (0.048 + 0.2), rel=0.02)
    # The GPU would take 32 samples in 30 ms.
    assert outcome.idle == pytest.approx(1 - outcome.throughput * 0.03 / 32, abs=0.01)
    assert outcome.remedy is not None and outcome.remedy.provenance == "measured"


def test_slow_storage_is_cured_by_a_fast_drive_where_sizes_are_known():
    slow = read_scenario(job(sample_bytes=1.2e5).to_dict() | {"host": {"cores": 12, "storage": "hdd-7200"}})
    found = what_if(slow, STUDY, ["local-nvme", "more-cores"])
    assert found.today.idle > 0.9 and not found.need_cores
    assert by_name(found)["local-nvme"].idle < 0.1
    assert conclusion(found).startswith("Do not buy cores")
    assert "local-nvme" not in {remedy.name for remedy in remedies_named(job(fetch="5 ms"))}


def test_one_library_thread_applies_where_there_are_more():
    crowded = read_scenario(job().to_dict() | {"loader": {"workers": 4, "library_threads": 16}})
    found = what_if(crowded, STUDY, ["one-library-thread"])
    assert by_name(found)["one-library-thread"].idle < found.today.idle
    assert "one-library-thread" not in {remedy.name for remedy in remedies_named(job())}


def test_the_verb(tmp_path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "job.toml"
    path.write_text(
        '[workload]\nbatch_size = 32\npreprocess = "6 ms"\n[accelerator]\nstep = "60 ms"\n[host]\ncores = 4\n'
    )
    assert main(["whatif", str(path), "--remedy", "offline", "--set", "workload.collate=1 ms"]) == 0
    assert "offline" in capsys.readouterr().out
    assert main(["whatif", str(path), "--remedy", "offline", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["remedies"][0]["name"] == "offline"
    assert main(["whatif", str(path), "--remedy", "pray"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_first_line_names_its_option_and_the_recommended_one():
    # /dev/shm holds the batches of one worker, and stages need none of it.
    scenario = read_scenario(job().to_dict() | {"host": {"cores": 4, "shm_bytes": 60e6}})
    other = what_if(scenario, STUDY, ["more-workers"])
    assert decide(scenario, STUDY).point.option == other.chosen == 3
    assert "per GPU, option 2 (overlapped), the GPU idles" in conclusion(other)
    assert conclusion(other).endswith("Recommended is option 3 (staged): --option 3 looks at that.")
    assert what_if_document(other)["recommended_option"] == 3
    assert "Recommended" not in conclusion(what_if(scenario, STUDY, ["more-workers"], option=Option.STAGED))
    # Whoever knows the recommendation is not asked for it again.
    assert what_if(scenario, STUDY, ["more-workers"], said=KNOWN).chosen == 2


def test_what_rests_on_this_job_s_numbers_comes_first_and_then_what_costs_least():
    found = what_if(job(), STUDY)
    order = [outcome.remedy for outcome in found.outcomes]
    helps = [outcome.helps(found.today.throughput) for outcome in found.outcomes]
    assert helps == sorted(helps, reverse=True) and any(helps) and not all(helps)
    for does in (True, False):
        group = [remedy for remedy, good in zip(order, helps, strict=True) if good == does]
        ranks = [(PROVENANCES.index(remedy.provenance), REMEDIES.index(remedy)) for remedy in group]
        assert ranks == sorted(ranks)
    assert order[0].provenance == "measured" and order[-1].provenance != "measured"
    # Nothing but cores that was measured helps, and a recorded remedy goes before an assumed one that gives more.
    recorded, assumed = (
        next(o for o in found.outcomes if o.remedy.provenance == rests) for rests in ("recorded", "assumed")
    )
    slow = replace(recorded, idle=0.5, throughput=1.2 * found.today.throughput)
    fast = replace(assumed, idle=0.4, throughput=2.0 * found.today.throughput)
    assert replace(found, outcomes=(slow, fast)).best == slow
    assert replace(found, outcomes=(slow, replace(slow, throughput=9e9), fast)).best.throughput == 9e9


def test_the_best_remedy_meets_the_target_where_one_does():
    found = what_if(job(), STUDY, ["mixed-precision", "offline"])
    fast = replace(found.outcomes[0], throughput=2000.0, idle=0.3)
    enough = replace(found.outcomes[1], throughput=1000.0, idle=0.04)
    assert replace(found, outcomes=(fast, enough)).best == enough
    assert replace(found, outcomes=(fast, replace(enough, idle=0.06))).best == fast
    assert replace(found, outcomes=(fast, replace(enough, possible=False))).best == fast
    assert replace(found, outcomes=(replace(enough, throughput=1.0),)).best is None


def test_remedies_for_decoding_follow_what_the_profile_measured():
    pictures = profile()
    scenario = pictures.scenario()
    share = pictures["prepare.step.decode"].mean / pictures["prepare.sample"].mean
    assert scenario.workload.decode_share == pytest.approx(share) and 0.4 < share < 0.6
    assert {remedy.name for remedy in remedies_named(scenario)} > DECODING
    # A data set of the user's own is one step, and not known to decode.
    own = replace(
        pictures,
        measurements=tuple(m for m in pictures.measurements if not m.name.startswith("prepare.step.")),
    )
    plain = own.scenario()
    assert not DECODING & {remedy.name for remedy in remedies_named(plain)}
    found = what_if(plain, STUDY, said=KNOWN)
    assert set(found.left_out) == DECODING
    assert "0.0 % of the preparation is known to decode: faster-decoder, raw-format" in " ".join(
        what_if_text(found).split()
    )
    with pytest.raises(InputError, match=r"0\.0% of the preparation is known to decode; if more does, set workload"):
        what_if(plain, STUDY, ["gpu-decode"])
    told = replace(plain, workload=replace(plain.workload, decode_share=0.5))
    assert {remedy.name for remedy in remedies_named(told)} > DECODING
    # No other decoder spares more than decoding takes.
    little = replace(plain, workload=replace(plain.workload, decode_share=0.1))
    faster = next(remedy for remedy in REMEDIES if remedy.name == "faster-decoder")
    for change in faster.transforms:
        assert change(little).workload.preprocess.mean == pytest.approx(0.9 * plain.workload.preprocess.mean)


def test_no_line_behind_the_first_is_wider_than_the_text():
    found = what_if(job(sample_bytes=1e5, samples_per_epoch=10**6), STUDY, said=KNOWN)
    assert max(map(len, what_if_text(found).splitlines()[1:])) <= WIDTH
