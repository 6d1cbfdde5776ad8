"""s(k) held against published curves: the scaling, its data, and the page that it recorded."""

from __future__ import annotations

import csv
from pathlib import Path

import curves
import node_cases
import pytest
import scaling

from coresim.errors import InputError
from coresim.model.speed import SpeedTable


@pytest.mark.slow
def test_the_recorded_page_is_what_todays_model_says() -> None:
    assert scaling.TABLE.read_text() == scaling.whole_page(), "run calibration/scaling.py"


def test_siblings_add_at_most_one_thread_to_each_core() -> None:
    table = SpeedTable((1.0, 0.9), (0.0, 0.03), 0.2, 0.04)
    whole, half, none = (curves.rate_of(table, threads, 2) for threads in (4, 3, 2))
    assert (none.value, none.uncertainty) == (1.8, 0.03) and curves.rate_of(table, 9, 2).value == whole.value
    assert (whole.value, half.value) == pytest.approx((1.2 * 1.8, 1.1 * 1.8))
    assert whole.uncertainty == pytest.approx(0.05)


def test_every_point_has_its_source_and_what_is_given() -> None:
    curves = scaling.load()
    assert sum(len(curve.published) for curve in curves) == 39
    for curve in curves:
        assert curve.source.startswith("github:") and curve.given
        assert not curve.given.keys() & curve.published.keys()


def test_a_published_curve_is_read_as_it_is_written() -> None:
    by_case = {curve.case: curve for curve in scaling.load()}
    folder = by_case["PyTorch ImageFolder 512 px"]
    assert (folder.given, folder.cap, folder.published) == ({12: 2211.0}, 3955.0, {24: 3804.0, 48: 3950.0})
    assert by_case["mxnet imdecode"].given == {1: pytest.approx(1 / 0.434)}
    assert by_case["mxnet imdecode"].published[16] == pytest.approx(1 / 0.049)
    assert by_case["petastorm, numpy"].cores is None


def test_a_consumers_cap_is_not_passed_and_says_nothing_of_the_cores() -> None:
    folder = next(curve for curve in scaling.load() if curve.case.startswith("PyTorch"))
    assert all(row.predicted.value <= folder.cap for row in scaling.rows([folder], scaling.by_model()))
    again = scaling.two_given(folder)
    assert again.given == folder.given and list(again.published) == [48]


def test_the_second_value_under_the_lock_tells_what_passing_costs() -> None:
    threads = next(curve for curve in scaling.load() if curve.lock)
    once, twice = (scaling.rows([c], scaling.by_model())[-1] for c in (threads, scaling.two_given(threads)))
    assert once.count == twice.count == 32 and abs(twice.error) < abs(once.error)


def test_another_file_is_printed_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "TABLE", tmp_path / "page.md")
    other = tmp_path / "other.csv"
    head = "case,source,quantity,given,setting,published,unit\n"
    rows = [f"made up,nobody,1/s,2 workers 100/s,{count} workers,{rate},1/s\n" for count, rate in ((4, 190), (8, 360))]
    other.write_text(head + "".join(rows))
    assert scaling.main(["--cases", str(other)]) == 0
    assert "made up" in capsys.readouterr().out and not scaling.TABLE.exists()


@pytest.mark.parametrize(
    ("row", "match"),
    [("a,b,c,some,4 workers,1,1/s", "given 'some'"), ("a,b,c,1 thread 1/s,many,1,1/s", "setting 'many'"),
     ("a,b,c,1 thread 1/s,4 workers,x,1/s", "line 2")],
)  # fmt: skip
def test_a_row_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: str, match: str
) -> None:
    other = tmp_path / "other.csv"
    other.write_text("case,source,quantity,given,setting,published,unit\n" + row + "\n")
    assert scaling.main(["--cases", str(other)]) == 2
    assert match in capsys.readouterr().err
    assert scaling.main(["--cases", str(tmp_path / "gone.csv")]) == 2


def test_every_natural_experiment_is_predicted_or_named_with_its_reason() -> None:
    cases = node_cases.load()
    assert len(cases) == len({case.case for case in cases}) == 25 and all(case.source for case in cases)
    # Whoever gives all that a prediction needs is not left out.
    assert all(not (case.rate_1 and case.rate_n and case.cores and case.workers) for case in cases if case.left_out)
    # A miss is never hidden: what is not held to the bound is on the page with its error and the reason.
    named = [case for case in cases if case.not_held]
    assert named and not any(case.left_out for case in named)
    page = scaling.TABLE.read_text()
    assert all(f"| {case.case} |" in page and f"| {case.not_held} |" in page for case in named)
    assert all(f"- {case.case} ({case.machine}): {case.left_out}" in page for case in cases if case.left_out)


def test_what_a_named_processor_tells_is_given() -> None:
    known = {case.case: case for case in node_cases.load()}
    dgx = known["EfficientNet-B0 AMP, DGX A100"]
    assert dgx.channels == pytest.approx(2 * 204.8e9) and dgx._replace(machine="not given").channels is None
    # With fewer channels for as many cores, and a clock that falls further, the workers of a node lack more.
    bare = dgx._replace(machine="", clocks="")
    less, more = (node_cases.predicted(case, case) for case in (bare, dgx))
    assert all(less < node_cases.predicted(c, c) < more for c in (dgx._replace(machine=""), dgx._replace(clocks="")))


def test_the_loss_of_a_node_is_of_its_shared_cores() -> None:
    known = {case.case: case for case in node_cases.load()}
    assert known["ResNet-50 AMP, DGX-1"].loss == pytest.approx(1 - 8322 / 9600)
    crowded = known["ResNet-50 AMP, DGX A100"]._replace(cores=40)
    roomy = crowded._replace(cores=400)
    losses = [node_cases.predicted(case, case) for case in (crowded._replace(gpus=1), roomy, crowded)]
    # One GPU loses nothing to itself; 64 workers on 400 cores lose less than on 40.
    assert losses[0] == pytest.approx(0, abs=1e-9) and losses[1] < losses[2]
    bound = known["ResNet-50 FP32, DGX-1"]
    assert abs(node_cases.predicted(bound, known[bound.cost_from])) < losses[2]


def test_one_gpu_counts_as_bound_by_the_loader_where_nets_of_different_cost_are_as_fast() -> None:
    by_machine: dict[str, list[float]] = {}
    for case in node_cases.load():
        if case.bound == "loader":
            by_machine.setdefault(case.machine, []).append(case.rate_1)
    assert by_machine
    for rates in by_machine.values():
        assert len(rates) > 1 and max(rates) <= (1 + node_cases.PUBLISHED) * min(rates)


@pytest.mark.parametrize(
    ("change", "match"),
    [({"bound": "both"}, "bound must be"), ({"workers": ""}, "the reason in left_out"), ({"gpus": "x"}, "line 2")],
)
def test_a_node_case_that_cannot_be_read_is_named(tmp_path: Path, change: dict[str, str], match: str) -> None:
    with node_cases.CASES.open(newline="") as file:
        row = next(csv.DictReader(file)) | change
    other = tmp_path / "other.csv"
    with other.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    with pytest.raises(InputError, match=match):
        node_cases.load(other)
