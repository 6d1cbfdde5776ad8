"""The accelerator catalogue: every shipped row is sound, and the row that is chosen is the one that should be."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from coresim.cli import listing as verb
from coresim.errors import InputError
from coresim.machines import catalogue
from coresim.machines.catalogue import (
    CERTAINTIES,
    DEFAULT_GPU,
    DEFAULT_MODEL,
    KINDS,
    LOADER_BOUND,
    PRECISIONS,
    StepChoice,
    StepRow,
    find_step,
    load_catalogue,
    precision_family,
    select_rows,
)
from coresim.report.listings import catalogue_listing

ROWS = load_catalogue()
PLAIN = StepRow(
    *("Net-5", "test", "image", "X100-SXM-80GB", 1, "AMP fp16", 64, 0.1, 640.0, "F 1", "disk", "H"),  # type: ignore[arg-type]
    *("measured", "gpu_bound", "github:a/b c", "1", "why"),
)


def find_in(rows: Sequence[StepRow], *asked: Any, **more: Any) -> StepChoice:
    """`find_step` with these rows for a catalogue."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "load_catalogue", lambda: rows)
        return find_step(*asked, **more)


def chosen(*rows: StepRow, batch_size: int | None = None, precision: str | None = None, gpu: str = "x100") -> StepRow:
    first = find_in(rows, gpu, "net5", batch_size, precision).row
    assert find_in(rows[::-1], gpu, "net5", batch_size, precision).row == first
    return first


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.model}|{row.gpu}|{row.framework}|{row.batch_size}")
def test_a_shipped_row_is_sound(row: StepRow) -> None:
    for number in (row.n_gpus, row.batch_size, row.step_time_s, row.throughput_samples_per_s):
        assert math.isfinite(number) and number > 0
    # Some sources average the time and the rate apart; they agree within 1 %.
    assert row.step_time_s * row.throughput_samples_per_s == pytest.approx(row.batch_size, rel=0.01)
    assert row.certainty in CERTAINTIES
    assert row.kind in KINDS
    assert precision_family(row.precision) in PRECISIONS
    assert row.source.startswith("github")
    texts = [getattr(row, field.name) for field in fields(row) if field.type == "str"]
    assert all(text == text.strip() and text for text in texts)


def test_no_row_is_there_twice() -> None:
    assert len(set(ROWS)) == len(ROWS) > 150


def test_an_estimate_is_marked_in_both_columns_and_says_how() -> None:
    estimates = [row for row in ROWS if "estimate" in (row.kind, row.certainty)]
    assert {row.gpu for row in estimates} == {"A10G", "L4", "T4"}
    assert all(row.kind == row.certainty and "A10" in row.notes for row in estimates)


def test_every_gpu_and_model_of_the_catalogue_finds_itself() -> None:
    for row in ROWS:
        choice = find_step(row.gpu, row.model, row.batch_size)
        assert choice.row.model == row.model
        assert choice.row.kind != LOADER_BOUND
        assert row in select_rows(row.gpu, row.model)


def test_the_default_is_a_gpu_bound_mixed_precision_resnet50_on_the_gpu_that_it_names() -> None:
    choice = find_step()
    assert (choice.row.gpu, choice.row.model) == (DEFAULT_GPU, DEFAULT_MODEL)
    assert choice.row.kind == "gpu_bound"
    assert precision_family(choice.row.precision) == "mixed"
    assert (choice.step_time_s, choice.row.batch_size) == (0.15012, 512)


def test_loader_bound_records_of_the_default_net_and_gpu_exist_and_are_passed_over() -> None:
    skipped = [row for row in select_rows(DEFAULT_GPU, DEFAULT_MODEL) if row.kind == LOADER_BOUND]
    assert skipped
    for row in skipped:
        assert find_step(row.gpu, row.model, row.batch_size, row.precision).row.kind == "gpu_bound"


@pytest.mark.parametrize(
    ("gpu", "model", "found_gpu", "found_model"),
    [
        ("a100", "resnet50", "A100", "ResNet-50 v1.5"),
        ("A100-SXM4-80GB", "ResNet-50 v1.5", "A100-SXM4-80GB", "ResNet-50 v1.5"),
        ("NVIDIA A100-SXM4-40GB", "ResNet 50", "A100-SXM4-40GB", "ResNet-50 v1.5"),
        ("NVIDIA H100 80GB HBM3", "resnet_50", "H100-SXM5-80GB", "ResNet-50 v1.5"),
        ("NVIDIA H100 PCIe", "resnet50", "H100-PCIe-80GB", "ResNet-50 v1.5"),
        ("NVIDIA GeForce RTX 3090", "timm resnet50", "RTX 3090", "ResNet-50 v1.5"),
        ("3090", "vit_base", "RTX 3090", "vit_base_patch16_224"),
        ("rtx3090", "efficientnet_b0", "RTX 3090", "EfficientNet-B0"),
        ("a10", "resnet50", "A10", "ResNet-50 v1.5"),
        ("a100", "maskrcnn", "A100-SXM4-80GB", "Mask R-CNN R50-FPN"),
        ("a100", "squad", "A100", "BERT-large SQuAD fine-tune s384"),
    ],
)
def test_names_are_forgiving(gpu: str, model: str, found_gpu: str, found_model: str) -> None:
    row = find_step(gpu, model).row
    assert row.gpu.startswith(found_gpu) and row.model == found_model


def test_a_short_name_never_reaches_another_chip() -> None:
    for asked in ("a10", "l4", "v100", "h100", "h200"):
        assert {row.gpu.lower().split("-")[0].split()[-1] for row in select_rows(asked)} == {asked}
    with pytest.raises(InputError, match="unknown GPU 'l40'; nearest known: L40S"):
        find_step("l40", "resnet50")


def test_a_net_whose_name_is_part_of_another_is_not_taken_for_it() -> None:
    rows = [replace(PLAIN, model="Detector Net-5"), replace(PLAIN, gpu="Y1")]
    with pytest.raises(InputError, match="no step of 'net-5' recorded on GPU 'x100'; recorded on: Y1"):
        find_in(rows, "x100", "net-5")


@pytest.mark.parametrize(
    ("gpu", "model", "message"),
    [
        ("a1000", "resnet50", "unknown GPU 'a1000'; nearest known: .*A100"),
        ("", "resnet50", "unknown GPU ''"),
        ("a100", "resnet5o", "unknown model 'resnet5o'; nearest known: .*ResNet-50 v1.5"),
        ("a100", "", "unknown model ''"),
        ("rtx", "resnet50", "GPU 'rtx' may mean 4 .*RTX 3090, RTX 4090"),
        ("3090", "resnet", "model 'resnet' may mean 4 .*ResNet-101"),
        ("a100", "bert", "model 'bert' may mean 3 .*SQuAD"),
    ],
)
def test_unknown_and_ambiguous_names_are_one_line_with_names_to_use(gpu: str, model: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        find_step(gpu, model)
    assert "\n" not in str(error.value)


def test_another_batch_scales_in_proportion_and_says_so() -> None:
    choice = find_in([PLAIN], "x100", "net5", 256)
    assert choice.step_time_s == pytest.approx(0.4)
    assert "at 640 samples/s" in choice.provenance
    assert "scaled in proportion to batch 256" in choice.provenance
    assert "scaled" not in find_in([PLAIN], "x100", "net5", 64).provenance


def test_the_provenance_names_the_whole_stack_the_certainty_and_the_source() -> None:
    provenance = find_in([PLAIN], "x100", "net5").provenance
    for part in ("Net-5", "X100-SXM-80GB", "AMP fp16", "F 1", "disk", "host: H", "measured", "±30%", "github:a/b c"):
        assert part in provenance
    assert "\n" not in provenance


@pytest.mark.parametrize("batch_size", [0, -4])
def test_a_batch_that_is_not_positive_is_refused(batch_size: int) -> None:
    with pytest.raises(InputError, match="not positive"):
        find_step(batch_size=batch_size)


def test_uncertainty_widens_with_the_batch_ratio_both_ways_and_is_capped() -> None:
    widths = {batch: find_in([PLAIN], "x100", "net5", batch).uncertainty for batch in (16, 32, 64, 128)}
    assert widths[16] > widths[32] > widths[64] < widths[128]
    assert widths[32] == pytest.approx(widths[128])
    assert find_in([PLAIN], "x100", "net5", 2**30).uncertainty == 0.9


def test_uncertainty_widens_with_poorer_evidence_and_another_form_of_the_chip() -> None:
    def width(row: StepRow, gpu: str = "x100") -> float:
        return find_in([row], gpu, "net5").uncertainty

    usable = [kind for kind in KINDS if kind != LOADER_BOUND]
    widths = [width(replace(PLAIN, kind=kind)) for kind in usable]
    assert widths == sorted(widths) and len(set(widths)) == len(widths)
    assert width(replace(PLAIN, certainty="vendor-config")) > width(PLAIN)
    assert width(PLAIN, "X100-PCIe-80GB") > width(PLAIN, "X100-SXM-40GB") > width(PLAIN, "X100-SXM-80GB")
    assert "X100-PCIe-80GB asked for" in find_in([PLAIN], "X100-PCIe-80GB", "net5").provenance


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"kind": "unproven", "precision": "FP32"}, {"kind": "estimate"}),
        ({"precision": "fp16"}, {"precision": "FP32", "kind": "gpu_step"}),
        ({"certainty": "measured"}, {"certainty": "historic", "kind": "gpu_step"}),
        ({"kind": "gpu_step"}, {"kind": "gpu_bound", "gpu": "X100"}),
        ({"n_gpus": 1}, {"n_gpus": 8, "throughput_samples_per_s": 900.0}),
        ({"throughput_samples_per_s": 700.0}, {"throughput_samples_per_s": 640.0}),
    ],
)
def test_the_documented_ranking(better: dict[str, object], worse: dict[str, object]) -> None:
    good, bad = replace(PLAIN, **better), replace(PLAIN, **worse)  # type: ignore[arg-type]
    assert chosen(good, bad) == good


def test_the_form_asked_for_comes_before_the_nearest_batch() -> None:
    same_form, near_batch = replace(PLAIN, batch_size=8), replace(PLAIN, gpu="X100-PCIe-80GB")
    assert chosen(same_form, near_batch, batch_size=64, gpu="X100-SXM-80GB") == same_form


def test_the_nearest_batch_is_nearest_by_ratio() -> None:
    small, large = replace(PLAIN, batch_size=16), replace(PLAIN, batch_size=128)
    assert chosen(small, large, batch_size=64) == large  # 2x away, though 48 samples nearer to the small one
    assert chosen(small, large, batch_size=17) == small


def test_a_precision_that_is_asked_for_is_kept_to() -> None:
    full = replace(PLAIN, precision="FP32")
    assert chosen(PLAIN, full, precision="fp32") == full
    with pytest.raises(InputError, match=r"no step recorded in 'fp8' .*recorded: fp32, mixed"):
        find_in([PLAIN, full], "x100", "net5", precision="fp8")
    with pytest.raises(InputError, match="unknown precision 'int3'"):
        find_step(precision="int3")


def test_a_loader_bound_row_is_never_chosen() -> None:
    fast = replace(PLAIN, kind=LOADER_BOUND, throughput_samples_per_s=9000.0)
    poor = replace(PLAIN, kind="emulated", certainty="vendor-config", precision="not stated", batch_size=1)
    assert chosen(fast, poor, batch_size=64) == poor
    with pytest.raises(InputError, match="limited by its loader"):
        find_in([fast], "x100", "net5")


def run_verb(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    verb.add_parser(parser.add_subparsers())
    args = parser.parse_args(["catalogue", *argv])
    return int(args.run(args))


def test_the_verb_prints_one_json_document_with_source_and_certainty(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verb("--gpu", "a100", "--model", "resnet50", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document == catalogue_listing(select_rows("a100", "resnet50")).document
    assert {"source", "certainty", "host", "step_time_s", "input_path"} <= document["rows"][0].keys()


def test_the_table_has_every_row_with_its_source_and_marks_what_is_never_chosen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_verb("--gpu", "a100") == 0
    lines = capsys.readouterr().out.splitlines()
    rows = select_rows("a100")
    for line, row in zip(lines[1:], rows, strict=False):
        assert row.model in line and line.endswith(row.source) and row.certainty in line and row.kind in line
    assert any(line.startswith(f"{len(rows)} rows: ") for line in lines)
    assert f"{LOADER_BOUND}: the loader sets the rate; never chosen" in "\n".join(lines)
