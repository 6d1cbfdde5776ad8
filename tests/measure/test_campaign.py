"""The campaign: order, times, warnings and what is left behind, with fakes; and one real run for its shape."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from coresim.cli import measure as verb
from coresim.cli.common import check_writable, progress_on_stderr
from coresim.cli.main import main
from coresim.cli.request import request_from
from coresim.device import models
from coresim.device.models import NETS
from coresim.errors import InputError, MissingPartError
from coresim.measure import campaign, step_time
from coresim.measure.accelerator import SLOW_S, AcceleratorConfig, AcceleratorResult
from coresim.measure.calibrate import BUDGET_S
from coresim.measure.campaign import BUDGET, BUILDING, QUICK_BUDGET, Request, run_campaign
from coresim.measure.rig import DatasetFacts
from coresim.measure.server import Ask, Calibrated
from coresim.measure.speed_evidence import speed_table
from coresim.measure.stand_in import StandInSubject
from coresim.measure.step_time import CPU_REPEATS, StepRequest
from coresim.model.host import CoreTerm, HostFacts, OptionalPart
from coresim.model.measurement import Measurement
from coresim.model.profile import Profile, load_document
from coresim.model.warning import HostWarning
from coresim.report.measured import measured_sections
from coresim.workloads.named import WorkloadSpec

SMALL_SHM = HostFacts(terms=(CoreTerm("affinity", 2.0, "two"),), physical_cores=2, hypervisor=False, shm_bytes=1000)
HERE = Path("data.jpg")
FACTS = DatasetFacts("fake", "a fake loader", 16, 500, 1000.0, (HERE,))
GPU_PARTS = (OptionalPart("torch", True, "2", "", ""), OptionalPart("CUDA device", True, "1", "", ""))


def one(name: str, value: float, unit: str = "s/sample") -> Measurement:
    return Measurement(name, unit, ((value,), (value * 1.5,)), "fake")


class FakeServer:
    """Says what it is asked; its data set is there while it is open."""

    def __init__(
        self, fakes: Fakes, spec: WorkloadSpec, *, build_timeout: float | None, tell: Callable[[str], None]
    ) -> None:
        self._fakes, self.facts, self.import_s = fakes, fakes.facts, fakes.import_s
        fakes.arguments["server"] = (spec, build_timeout)
        fakes.folder = Path(spec.folder)
        assert fakes.folder.is_dir()
        tell(f"{BUILDING}, 7 s")
        fakes.note("build", None)

    def __enter__(self) -> FakeServer:
        self._fakes.is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._fakes.is_open = False

    def calibrate(self, ask: Ask, progress: Callable[[float], None]) -> Calibrated:
        assert self._fakes.is_open
        self._fakes.asked.append(ask)
        progress(0.5)
        found = [one("prepare.sample", 0.01), one("scaling.1", 0.01), one("scaling.2", 0.0125)]
        warning = HostWarning("loader", "seen", "mend it")
        result = Calibrated(found, [warning], 1.0, 0.02, 4096, 2, batch_size=self._fakes.ran)
        made: Calibrated = self._fakes.note("loader", result)
        return made

    def ask(self, path: Path) -> None:
        assert self._fakes.is_open
        self._fakes.note("batch", None)
        path.write_text("a batch")

    def time_step(self, config: AcceleratorConfig) -> AcceleratorResult:
        assert self._fakes.is_open
        return self._fakes.accelerator(config, "step here")


class Fakes:
    """Measuring functions that note who was called with what."""

    def __init__(self, facts: DatasetFacts = FACTS) -> None:
        self.facts, self.is_open, self.import_s = facts, False, 1.0
        self.calls: list[str] = []
        self.asked: list[Ask] = []
        self.configs: list[AcceleratorConfig] = []
        self.seconds: dict[str, float] = {}
        self.arguments: dict[str, Any] = {}
        self.fail: dict[str, BaseException] = {}
        self.parts: tuple[OptionalPart, ...] = ()
        self.settled = True
        self.others = 0.0
        self.ran: int | None = None
        self.own_device = ""
        self.folder = Path()

    def stand_in(self, patch: pytest.MonkeyPatch) -> None:
        """Measure in the place of the functions that do."""
        bandwidth = [one("bandwidth.triad.1", 1e9, "B/s"), one("bandwidth.triad.2", 1.6e9, "B/s")]
        for place, name, found in (
            ("measure_droop", "spin", [one("spin.1", 0.001), one("spin.2", 0.001)]),
            ("measure_bandwidth", "bandwidth", bandwidth),
            ("measure_storage", "storage", [one("storage.cold.read", 0.02)]),
        ):
            patch.setattr(campaign, place, self._measuring(name, found))
        patch.setattr(campaign, "make_data", write_data)
        patch.setattr(campaign, "read_host", lambda: self.note("host", SMALL_SHM))
        for module in (step_time, campaign):
            patch.setattr(module, "optional_parts", lambda: self.parts)
        patch.setattr(campaign, "Server", partial(FakeServer, self))
        patch.setattr(campaign, "measure_accelerator", self.accelerator)

    def note(self, name: str, result: Any) -> Any:
        self.calls.append(name)
        if name in self.fail:
            raise self.fail[name]
        return result

    def accelerator(self, config: AcceleratorConfig, name: str = "accelerator") -> AcceleratorResult:
        self.arguments["accelerator"] = (config,)
        self.configs.append(config)
        about = {
            "step": config.model,
            "device": self.own_device or ("cpu" if config.device == "cpu" else "Fake 9000"),
            "precision": config.precision,
            "torch": "2",
        }
        found = (one("accelerator.step", 0.1, "s/step"), one("copy.pinned", 0.004, "s/batch"))
        result: AcceleratorResult = self.note(name, AcceleratorResult(found, False, self.settled, about, self.others))
        return result

    def _measuring(self, name: str, found: list[Measurement]) -> Callable[..., list[Measurement]]:
        def measure(*args: Any) -> list[Measurement]:
            assert self.folder.is_dir() and not self.is_open
            *self.arguments[name], context = args
            self.seconds[name] = context.budget_s
            context.warnings.append(HostWarning(name, "seen", "mend it"))
            context.progress(0.5)
            result: list[Measurement] = self.note(name, found)
            return result

        return measure


def write_data(spec: WorkloadSpec) -> None:
    Path(spec.folder, "data").write_text("much")


def run(fakes: Fakes, **request: Any) -> Profile:
    told: list[tuple[str, float]] = []
    with pytest.MonkeyPatch.context() as patch:
        fakes.stand_in(patch)
        patch.setattr(campaign, "utc_now", lambda: "2024-01-01T00:00:00+00:00")
        made = run_campaign(
            Request(**request),
            progress=lambda what, fraction: told.append((what, fraction)),
            command="coresim measure",
        )
    fractions = [fraction for _, fraction in told]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert f"{BUILDING}, 7 s" in dict(told)
    return made


def test_order_and_what_comes_of_it() -> None:
    fakes = Fakes()
    made = run(fakes)
    assert fakes.calls == ["host", "build", "loader", "spin", "bandwidth", "storage"]
    assert (made.workload, made.loader, made.batch_size, made.samples) == ("fake", "a fake loader", 16, 500)
    assert (made.bytes_per_batch, made.arrays_per_batch) == (4096, 2)
    assert [m.name for m in made.measurements][:2] == ["prepare.sample", "scaling.1"]
    assert len(made.measurements) == 8 and made.host == SMALL_SHM
    assert made.provenance.command == "coresim measure" and made.provenance.time_utc.startswith("2024")
    assert made.provenance.host_fingerprint == SMALL_SHM.fingerprint
    assert fakes.arguments["storage"] == [(HERE,)]
    made.scenario()


def test_a_virtual_machine_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes()
    monkeypatch.setattr(sys.modules[__name__], "SMALL_SHM", replace(SMALL_SHM, hypervisor=True))
    made = run(fakes)
    assert "bandwidth" in fakes.calls and "spin" not in fakes.calls
    assert "slower with all cores busy, assumed" in made.speed_provenance and made.get("spin.1") is None


def test_the_fit_is_kept_as_numbers() -> None:
    made = run(Fakes())
    assert FACTS.bytes_per_sample is not None
    # Its file is read; the sample, of 4096 bytes for 16, is written, read and written again.
    fitted = speed_table(made.measurements, SMALL_SHM, FACTS.bytes_per_sample + 3 * 4096 / 16)
    assert len(made.speed) == 64 and made.speed == fitted.values
    assert made.speed_uncertainty == fitted.uncertainties and fitted.uncertainties[3] > fitted.uncertainties[1]
    host = made.scenario().host
    assert host.speed_uncertainty_at(1) == 0.0 and host.speed_uncertainty_at(1.5) == fitted.uncertainties[1]
    assert host.speed_uncertainty_at(500) == fitted.uncertainties[-1]
    assert "measured with 1 and 2 busy" in made.speed_provenance and "ceiling: " in made.speed_provenance


def test_warnings_come_from_everywhere() -> None:
    whats = [warning.what for warning in run(Fakes()).warnings]
    assert whats[0].startswith("/dev/shm is small")
    assert whats[1:] == ["loader", "spin", "bandwidth", "storage"]


def test_without_a_dataloader_the_answer_says_so() -> None:
    for loader, said in ((StandInSubject.loader, True), ("DataLoader", False)):
        assert (campaign.NO_TORCH in run(Fakes(replace(FACTS, loader=loader))).warnings) == said


def test_without_files_there_is_no_storage_and_it_is_said() -> None:
    fakes = Fakes(replace(FACTS, files=(), samples=sys.maxsize))
    made = run(fakes)
    assert "storage" not in fakes.calls and made.samples is None
    assert "storage was not measured" in [warning.what for warning in made.warnings]


def budgets(fakes: Fakes) -> dict[str, float]:
    [ask] = fakes.asked
    return {"loader": ask.budget_s, "pressure": ask.pressure_s} | fakes.seconds


def test_the_parts_share_the_budget() -> None:
    for request, seconds in (({}, BUDGET), ({"budget": 80.0}, 80.0), ({"quick": True}, QUICK_BUDGET)):
        fakes = Fakes()
        run(fakes, **request)
        shares = {"loader": 0.7, "pressure": 0.07, "spin": 0.03, "bandwidth": 0.1, "storage": 0.1}
        assert budgets(fakes) == pytest.approx({name: share * seconds for name, share in shares.items()})


def test_smaller_batches_may_run_and_the_profile_says_which() -> None:
    for light in (False, True):
        fakes = Fakes()
        fakes.ran = 4 if light else None
        made = run(fakes)
        # A batch of 16 has four times the bytes of the one that ran.
        assert (made.batch_size, made.measured_batch) == (16, 4 if light else None)
        assert (made.bytes_per_batch, made.batch_that_ran) == ((4 * 4096, 4) if light else (4096, 16))
        sample_bytes = (FACTS.bytes_per_sample or 0.0) + 3 * 4096 / made.batch_that_ran
        assert made.speed == speed_table(made.measurements, SMALL_SHM, sample_bytes).values
        said = "the loader ran with batches of 4" in measured_sections(made)[0].words
        assert said == light


def test_building_may_be_given_a_limit_and_has_none_of_itself() -> None:
    for request, limit in (({}, None), ({"build_timeout": 90.0}, 90.0)):
        fakes = Fakes()
        run(fakes, **request)
        assert fakes.arguments["server"][1] == limit


def test_timing_the_step_takes_no_time_from_the_rest() -> None:
    fakes = Fakes()
    fakes.parts = GPU_PARTS
    made = run(fakes)
    assert fakes.calls[1:4] == ["build", "accelerator", "loader"]
    assert budgets(fakes)["loader"] == pytest.approx(0.7 * BUDGET) == pytest.approx(BUDGET_S)  # as `validate` has it
    config: AcceleratorConfig = fakes.arguments["accelerator"][0]
    assert (config.device, config.model, config.batch_size, config.precision) == ("cuda", "resnet50", 16, "bf16")
    assert (config.processes, config.seconds, config.step, config.batch) == (3, 5.0, None, None)
    source = made.accelerator
    assert source.kind == "measured" and source.step_time_s is None and source.name == "Fake 9000"
    # Processes' means 0.10 and 0.15: error 0.025 of 0.125.
    assert source.uncertainty == pytest.approx(0.2) and "125 ms per step" in source.provenance
    device = made.scenario().accelerator
    assert device.step.mean == pytest.approx(0.125) and device.run_ahead == 1


@pytest.mark.parametrize(("device", "pins_for"), [(None, "cuda"), ("cuda:1", "cuda:1")])
def test_the_loader_pins_for_the_device_that_was_measured(device: str | None, pins_for: str) -> None:
    fakes = Fakes()
    fakes.parts = GPU_PARTS
    run(fakes, device=device)
    assert (fakes.asked[0].pin_memory, fakes.asked[0].device) == (True, pins_for)


def test_with_a_step_that_was_not_measured_the_loader_pins_where_there_is_a_device() -> None:
    for parts, given in ((GPU_PARTS, {"step_time": 0.25}), (GPU_PARTS, {"gpu": "a100"}), ((), {"step_time": 0.25})):
        fakes = Fakes()
        fakes.parts = parts
        run(fakes, **given)
        assert (fakes.asked[0].pin_memory, fakes.asked[0].device) == ((True, "cuda") if parts else (False, ""))


def test_a_step_timed_later_has_the_loader_pin_for_the_device_that_is_named() -> None:
    for device, pins in (("cpu", False), ("cpu:0", False), ("cuda:1", True), ("emulated:step=9ms", True)):
        fakes = Fakes()
        fakes.import_s = 2.0 * SLOW_S
        run(fakes, step="my:step", dataset="my:data", device=device)
        assert (fakes.asked[0].pin_memory, fakes.asked[0].device) == (pins, device if pins else "")


def test_where_importing_took_long_the_step_is_timed_in_the_process_that_has_the_data_set() -> None:
    """Its module may build the data set too, and each fresh process would import it."""
    fakes = Fakes()
    fakes.import_s = 2.0 * SLOW_S
    made = run(fakes, step="my:step", dataset="my:data", device="cpu", cpu_step=True)
    assert fakes.calls[1:6] == ["build", "loader", "batch", "step here", "step here"]
    assert made.accelerator.kind == "measured" and not fakes.asked[0].pin_memory
    assert [config.repeats for config in fakes.configs] == [1, CPU_REPEATS]
    fakes.parts, fakes.calls[:] = GPU_PARTS, []
    run(fakes, step="my:step", dataset="my:data")
    assert fakes.asked[1].pin_memory and "accelerator" not in fakes.calls
    # A built-in workload has no module that builds it, nor does a net.
    for other in ({"step": "my:step", "device": "cpu"}, {"dataset": "my:data", "device": "cpu"}):
        fakes.calls.clear()
        run(fakes, **other)
        assert fakes.calls[1:].index("accelerator") < fakes.calls[1:].index("loader")


def test_an_unsettled_step_is_said() -> None:
    fakes = Fakes()
    fakes.parts, fakes.settled = GPU_PARTS, False
    assert "the training step" in [warning.what for warning in run(fakes).warnings]


@pytest.mark.parametrize("part", ["build", "accelerator", "loader", "storage"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), InputError("bad")])
def test_nothing_is_left_behind(part: str, error: BaseException) -> None:
    fakes = Fakes()
    fakes.parts, fakes.fail = GPU_PARTS, {part: error}
    with pytest.raises(type(error)):
        run(fakes)
    assert fakes.calls[-1] == part and fakes.folder != Path() and not fakes.folder.exists() and not fakes.is_open


def test_a_dataset_has_no_folder_of_its_own_to_write_to() -> None:
    fakes = Fakes()
    run(fakes, dataset="my:data", batch_size=5, collate="my:join")
    spec: WorkloadSpec = fakes.arguments["server"][0]
    assert (spec.target, spec.batch_size, spec.collate) == ("my:data", 5, "my:join")
    assert Path(spec.folder) != Path.cwd() and not Path(spec.folder).exists()


# Where the step time comes from.


def test_a_recorded_step_stands_in_where_there_is_no_device() -> None:
    fakes = Fakes()
    made = run(fakes)
    source = made.accelerator
    assert source.kind == "catalogue" and source.provenance.startswith("catalogue: ResNet-50 v1.5 on A100")
    assert "judged within ±" in source.provenance and 0.1 < source.uncertainty < 0.5 and source.step_time_s
    assert "accelerator" not in fakes.calls
    own = run(Fakes(), dataset="my:data")
    assert own.accelerator.kind == "unknown" and not any("stands in" in warning.what for warning in own.warnings)
    with_data = run(Fakes(), dataset="my:data", gpu="a100")
    assert with_data.accelerator.kind == "catalogue"
    assert any("stands in for the one of your dataset" in warning.what for warning in with_data.warnings)
    assert not any("stands in" in warning.what for warning in made.warnings)


def test_a_given_step_and_a_named_gpu_win_over_the_device_here() -> None:
    fakes = Fakes()
    fakes.parts = GPU_PARTS
    given = run(fakes, step_time=0.25).accelerator
    assert (given.kind, given.step_time_s, given.uncertainty) == ("given", 0.25, 0.0)
    named = run(fakes, gpu="v100", model="resnet50").accelerator
    assert named.kind == "catalogue" and named.name is not None and "V100" in named.name
    assert "accelerator" not in fakes.calls


def test_torch_without_its_device_falls_back_and_says_so() -> None:
    fakes = Fakes()
    fakes.parts, fakes.fail = GPU_PARTS, {"accelerator": MissingPartError("torch is built without CUDA")}
    made = run(fakes)
    assert made.accelerator.kind == "catalogue"
    assert ("the CUDA device here was not measured", "torch is built without CUDA") in [c[:2] for c in made.warnings]


def test_a_net_that_is_not_here_is_looked_up() -> None:
    fakes = Fakes()
    fakes.parts = GPU_PARTS
    made = run(fakes, model="BERT-large SQuAD fine-tune s384")
    assert made.accelerator.kind == "catalogue" and "accelerator" not in fakes.calls
    assert any("was not measured" in warning.what for warning in made.warnings)


def test_what_is_asked_for_and_missing_is_an_error_with_the_remedy() -> None:
    fakes = Fakes()
    fakes.fail = {"accelerator": MissingPartError("no CUDA device: give --step-time")}
    with pytest.raises(MissingPartError, match="--step-time, or time the step on the CPU with --device cpu"):
        run(fakes, step="my:step")


def test_a_step_of_the_user_on_the_cpu() -> None:
    fakes = Fakes()
    run(fakes, step="my:step", device="cpu", dataset="my:data", quick=True)
    config: AcceleratorConfig = fakes.arguments["accelerator"][0]
    assert config.device == "cpu" and config.precision == "fp32" and config.processes == 3
    assert config.step == "my:step" and config.batch is not None and config.batch.name == "batch.pt"
    # The one process that has the data set gives the batch; nobody else builds it.
    assert fakes.calls[1:5] == ["build", "batch", "accelerator", "loader"]
    built_in = Fakes()
    run(built_in, step="my:step", device="cpu")
    assert built_in.arguments["accelerator"][0].batch is None


def test_a_step_with_a_device_of_its_own_has_no_time_on_the_cpu() -> None:
    """`AcceleratorConfig`'s device is what a step without one gets."""
    fakes = Fakes()
    fakes.own_device = "cuda:0"
    with pytest.raises(InputError, match="--cpu-step: my:step runs on cuda:0, as its own attribute says; leave"):
        run(fakes, step="my:step", device="cuda", cpu_step=True)


@pytest.mark.torch
def test_the_nets_that_can_be_measured_are_there() -> None:
    pytest.importorskip("torch")
    with pytest.raises(InputError, match=", ".join(NETS)):
        models.build_model("no such net")


@pytest.mark.parametrize(
    ("wrong", "told"), [({"gpu": "a1000"}, "unknown GPU 'a1000'"), ({"model": "resnet51"}, "'resnet51'")]
)
def test_a_name_that_no_record_has_is_told_before_anything_is_built(wrong: dict[str, str], told: str) -> None:
    fakes = Fakes()
    with pytest.raises(InputError, match=told):
        run(fakes, dataset="my:data", **wrong)
    assert not fakes.calls


@pytest.mark.parametrize(
    ("name", "net"),
    [
        (None, "resnet50"),
        ("ResNet-50 v1.5", "resnet50"),
        ("ResNet 18", "resnet18"),
        ("BERT-large SQuAD fine-tune s384", None),
    ],
)
def test_names_of_nets_are_forgiving(name: str | None, net: str | None) -> None:
    assert StepRequest(model=name).net == net


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"workload": "films"}, "workload 'films' is not known; use one of images"),
        ({"batch_size": 0}, "batch size = 0"),
        ({"budget": 0.5}, "budget = 0.5 s: at least 2 s"),
        ({"step_time": 0.0}, "--step-time = 0 s"),
        ({"step_time": 1.0, "gpu": "a100"}, "--step-time and --gpu: each gives the step time"),
        ({"step": "a:b", "gpu": "a100"}, "--step and --gpu"),
        ({"device": "cpu", "gpu": "a100"}, "--device says where to measure"),
    ],
)
def test_requests_that_make_no_sense(request_: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Request(**request_)


def test_a_precision_that_cannot_be_measured() -> None:
    fakes = Fakes()
    fakes.parts = GPU_PARTS
    with pytest.raises(InputError, match="--precision fp8: cannot be measured"):
        run(fakes, precision="fp8")
    run(fakes, precision="AMP fp16")
    assert fakes.arguments["accelerator"][0].precision == "bf16"


# The verb.


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    verb.add_parser(parser.add_subparsers())
    return parser.parse_args(["measure", *argv])


def test_arguments_become_a_request() -> None:
    flags = "--dataset a:b --batch-size 32 --collate c:d --step e:f --precision bf16 --device cpu --quick"
    asked = request_from(parsed(*flags.split(), "--budget", "2 min", "--build-timeout", "90s"))
    expected = Request(dataset="a:b", batch_size=32, collate="c:d", step="e:f", precision="bf16", device="cpu",
                       quick=True, budget=120.0, build_timeout=90.0)  # fmt: skip
    assert asked == expected
    assert request_from(parsed()) == Request()
    assert request_from(parsed("--step-time", "98 ms")).step_time == pytest.approx(0.098)
    assert request_from(parsed("--gpu", "h100", "--model", "resnet50")) == Request(gpu="h100", model="resnet50")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--step-time", "98"], '--step-time = \'98\': unit missing; write "98 ms" or "98 s"$'),
        (["--budget", "2"], '--budget = \'2\': unit missing; write "2 s" or "2 min"$'),
        (["--budget", "soon"], "--budget = 'soon': not a time; write a number and a unit, such as \"5.2 s\"$"),
        (["--build-timeout", "40"], '--build-timeout = \'40\': unit missing; write "40 s" or "40 min"$'),
        (["--dataset", "a:b", "--workload", "images"], "--dataset and --workload"),
    ],
)
def test_arguments_that_make_no_sense(argv: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        request_from(parsed(*argv))


@pytest.fixture
def fake_campaign(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fakes]:
    fakes = Fakes()
    fakes.stand_in(monkeypatch)
    yield fakes


def test_the_verb_writes_and_says(fake_campaign: Fakes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.json"
    assert verb.run(parsed("-o", str(path), "--step-time", "50 ms")) == 0
    out, err = capsys.readouterr()
    assert "prepare.sample" in out and "12.5 ms per sample" in out and f"written to {path}" in out
    assert "given: 50 ms per step of 16" in out and "each runs at 79% of its speed" in out and "mend it" in out
    told = err.splitlines()
    assert [line for line in told if "bandwidth" in line] == ["memory bandwidth ..."]
    assert [line for line in told if BUILDING in line] == [f"{BUILDING} ..."]  # not a line for each second
    assert load_document(path).accelerator.kind == "given"
    assert verb.run(parsed("-o", str(path), "--step-time", "50 ms", "--json")) == 0
    assert Profile.from_dict(json.loads(capsys.readouterr().out)) == load_document(path)


@pytest.mark.parametrize(("path", "words"), [("", "it is a folder"), ("no/p.json", "no folder"), ("pipe", "a device")])
def test_an_output_that_cannot_be_written_is_told_before(
    fake_campaign: Fakes, tmp_path: Path, path: str, words: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=words):
        verb.run(parsed("-o", str(tmp_path / path)))
    assert fake_campaign.calls == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="Permission denied"):
        check_writable(str(tmp_path / "p.json"))


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_on_stderr() as listen:
        listen("preparing samples", 0.25)
        listen("preparing samples", 0.5)
        listen("done", 1.0)
    out, err = capsys.readouterr()
    assert out == "" and "preparing samples" in err and "50%" in err and "100%" in err


def test_each_part_is_one_line_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_on_stderr() as listen:
        for what in (
            "running the loader",
            "waiting for a batch, 6 s",
            "running the loader, 20 %",
            "waiting for a batch, 7 s",
        ):
            listen(what, 0.5)
        listen("done", 1.0)
    assert capsys.readouterr().err.splitlines() == ["running the loader ...", "waiting for a batch ..."]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Profile, list[Path]]:
    """Everything for real, as fast as it goes; and what is left in the temporary folder, which is one of its own."""
    room = tmp_path_factory.mktemp("room")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(room))
        patch.setattr(campaign.tempfile, "tempdir", None)
        made = run_campaign(Request(workload="tiny", batch_size=4, quick=True, budget=2.0), command="test")
        assert campaign.tempfile.gettempdir() == str(room)
    return made, list(room.iterdir())


def test_a_real_quick_run(measured: tuple[Profile, list[Path]], tmp_path: Path) -> None:
    """Names and shapes only, never seconds."""
    made, left = measured
    assert left == []
    names = {m.name for m in made.measurements}
    expected = {"prepare.sample", "prepare.collate", "prepare.send", "receive.cpu", "worker.start", "worker.first"}
    assert names >= expected | {
        "worker.private",
        "machine.speed",
        "scaling.1",
        "bandwidth.triad.1",
        "handover.cpu.1",
        "handover.fed.1",
    }
    assert made.batch_size == 4 and made.bytes_per_batch > 0
    assert (campaign.NO_TORCH in made.warnings) == (find_spec("torch") is None)
    repeated = [m for m in made.measurements if m.name in expected | {"scaling.1", "worker.private"}]
    assert min(len(m.values) for m in repeated) >= 3
    made.save(tmp_path / "p.json")
    assert load_document(tmp_path / "p.json") == made
    scenario = made.scenario()
    assert scenario.workload.preprocess.mean > 0 and scenario.workload.consumer.mean > 0
    assert not scenario.accelerator.step.is_zero and len(scenario.host.speed) >= 64


def test_a_saved_profile_answers_without_torch(
    measured: tuple[Profile, list[Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "p.json"
    measured[0].save(path)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["recommend", str(path), "--json", "--max-cores", "4", "--set", "accelerator.step=40 ms"]) in (0, 4)
    assert json.loads(capsys.readouterr().out)["metadata"]["step_provenance"].startswith("given")
    document = json.loads(path.read_text())
    document["unknown_key"] = 1
    path.write_text(json.dumps(document))
    assert main(["recommend", str(path)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "unknown_key" in said


def test_the_step_on_the_cpu_is_timed_beside_the_other_where_it_is_asked_for() -> None:
    fakes = Fakes()
    made = run(fakes, cpu_step=True, model="resnet18", step_time=0.1)
    config: AcceleratorConfig = fakes.arguments["accelerator"][0]
    assert (config.device, config.model, config.batch_size) == ("cpu", "resnet18", 4)
    step = made["accelerator.cpu_step"]
    # 16 samples a batch, of which 4 were timed.
    assert step.flat == pytest.approx([4 * seconds for seconds in one("accelerator.step", 0.1, "s/step").flat])
    device = made.scenario().accelerator
    assert device.cpu_step is not None and device.cpu_step.mean == pytest.approx(step.mean)
    assert made.accelerator.kind == "given"
    assert made.get("accelerator.launch") is None
    with pytest.raises(InputError, match="--cpu-step: bert cannot be measured"):
        run(Fakes(), cpu_step=True, model="bert", step_time=0.1)


def test_a_net_on_the_cpu_is_timed_with_few_samples_and_taken_in_proportion() -> None:
    fakes = Fakes()
    made = run(fakes, model="resnet18", device="cpu")
    config: AcceleratorConfig = fakes.arguments["accelerator"][0]
    assert (config.device, config.model, config.batch_size) == ("cpu", "resnet18", 4)
    step = made["accelerator.step"]
    assert step.flat == pytest.approx([4 * seconds for seconds in one("accelerator.step", 0.1, "s/step").flat])
    assert step.how.startswith("of 4 samples, in proportion to 16; ")
    assert "resnet18 of 4 samples, in proportion to 16 on cpu" in made.accelerator.provenance
    assert made.accelerator.uncertainty > step_time.PROPORTION


def test_a_short_step_on_the_cpu_is_timed_with_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_time, "CPU_STEP_S", 0.6)
    fakes = Fakes()
    made = run(fakes, model="resnet18", device="cpu")
    assert fakes.arguments["accelerator"][0].batch_size == 16 and fakes.calls.count("accelerator") == 2
    assert made["accelerator.step"].flat == one("accelerator.step", 0.1, "s/step").flat


@pytest.mark.parametrize("request_of", [{"step": "my:step", "device": "cpu"}, {"model": "resnet18", "device": "cuda"}])
def test_a_step_of_the_users_own_and_a_net_on_cuda_are_timed_with_the_whole_batch(request_of: dict[str, str]) -> None:
    fakes = Fakes()
    made = run(fakes, **request_of)
    assert fakes.arguments["accelerator"][0].batch_size == 16
    assert made["accelerator.step"].flat == one("accelerator.step", 0.1, "s/step").flat


@pytest.mark.parametrize("asked", [{"device": "cpu"}, {"step_time": 0.1, "cpu_step": True}])
@pytest.mark.parametrize(("cores", "told"), [(0.04, False), (0.2, True)])
def test_other_programs_beside_the_step_are_told(
    cores: float, told: bool, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    fakes = Fakes()
    fakes.others = cores
    made = run(fakes, model="resnet18", **asked)
    found = [warning for warning in made.warnings if warning.what == "the machine was busy while the step was timed"]
    assert [warning.value for warning in found] == ["other programs used 0.2 cores"] * told
