"""Recorded accelerator step times, for a host that has no CUDA device to time.

The rows are in ``coresim/data/accelerator_steps.csv``. Each is one published training record with its source,
its stack (framework, precision, input path, host), its certainty, and its kind: whether the GPU, and not the
loader, is known to set the time. If a loader set the rate, the row only says how fast that loader was. It is listed and
never chosen, because it would recommend the cores of its own host.
"""

from __future__ import annotations

import csv
import difflib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

from coresim.errors import InputError
from coresim.files import DATA, read_text
from coresim.model.profile import AcceleratorSource
from coresim.units import format_duration

DEFAULT_GPU = "A100-SXM4-80GB"
DEFAULT_MODEL = "ResNet-50 v1.5"

LOADER_BOUND = "loader_bound"
# A judged "within ±x" is read as about 95 %: twice the standard uncertainty.
_DEVIATIONS = 2.0
#: Kind -> judged relative uncertainty of its step time on another stack; best first. For one net and GPU, published
#: GPU-bound stacks differ by 1.3x to 1.5x, host-limited ones by 2x or more, storage stand-ins by 3x to 4x.
KINDS = {
    "gpu_step": 0.25,  # data synthesised on the GPU
    "gpu_bound": 0.3,  # end to end, with evidence that the GPU sets the rate
    "unproven": 0.5,  # end to end, no evidence either way
    "estimate": 0.6,  # scaled from another GPU's row
    "emulated": 0.75,  # a storage benchmark's stand-in
    LOADER_BOUND: 0.75,  # the input path sets the rate
}
#: Certainty -> what it adds to that uncertainty; best first.
CERTAINTIES = {"measured": 0.0, "historic": 0.1, "vendor-config": 0.1, "estimate": 0.1}
#: Precision families in the order preferred when none is asked for: what people train with today comes first.
PRECISIONS = ("mixed", "fp8", "fp4", "not stated", "tf32", "fp32")

_PER_DOUBLING = 0.1  # nnU-Net 3D gains 9 % in rate from batch 2 to 4
_FORM_GAP, _MEMORY_GAP, _WIDEST = 0.2, 0.05, 0.9  # H100 PCIe against SXM is 1.6x; memory size alone changes little
_NUMBERS: dict[str, Any] = {"n_gpus": int, "batch_size": int, "step_time_s": float, "throughput_samples_per_s": float}
_NOISE = re.compile(r"nvidia|geforce|tesla|quadro|generation|timm|hbm\d\w*|\bv?1\.5\b|v1\.5|\bv1\b")
_FORM = re.compile(r"sxm\d?|pcie|\d+ ?gb\b")


@dataclass(frozen=True)
class StepRow:
    """One published training record of one net on one kind of GPU; batch, time and throughput are per GPU."""

    model: str  # the net, with what distinguishes it: input size, sequence length
    task: str
    sample: str  # what one sample is
    gpu: str  # form factor and memory where the source states them
    n_gpus: int  # GPUs in the run
    precision: str  # as the source calls it; see precision_family
    batch_size: int  # samples per step
    step_time_s: float
    throughput_samples_per_s: float
    framework: str
    input_path: str  # where the samples came from
    host: str  # CPU model and cores, or "not stated"
    certainty: str  # a key of CERTAINTIES
    kind: str  # a key of KINDS
    source: str  # public repository and path
    source_version: str  # commit or date of the source
    notes: str  # why the row has its kind; caveats


@dataclass(frozen=True)
class StepChoice:
    """A step time taken from the catalogue for one request."""

    row: StepRow
    step_time_s: float  # scaled to the batch size that was asked for
    uncertainty: float  # relative half-width of step_time_s, 0 to 0.9: a judgement and not a measurement
    provenance: str  # one line: the record, its stack, certainty and source, the scaling and the uncertainty


def precision_family(text: str) -> str:
    """The family of a precision name: ``AMP fp16``, ``bf16`` and ``mixed`` are all ``mixed``.

    Raises:
        InputError: a name of no known family.
    """
    name = text.lower()
    for family in ("fp4", "fp8", "tf32", "fp32", "not stated"):
        if family in name:
            return family
    if re.search(r"amp|mixed|fp16|bf16|half", name):
        return "mixed"
    raise InputError(f"unknown precision {text!r}; use one of {', '.join(PRECISIONS)}")


@lru_cache(maxsize=1)
def load_catalogue() -> tuple[StepRow, ...]:
    """Every row that is shipped with the package, in file order."""
    records = csv.DictReader(read_text(DATA / "accelerator_steps.csv").splitlines())
    return tuple(StepRow(**{key: _NUMBERS.get(key, str)(value) for key, value in row.items()}) for row in records)


def select_rows(gpu: str | None = None, model: str | None = None) -> list[StepRow]:
    """The rows of every GPU and every net that a name may mean, loader-bound ones included.

    Raises:
        InputError: a name that matches nothing (nearest known ones listed), or a net with no row on that GPU.
    """
    table = load_catalogue()
    chips, models = {chip(row.gpu) for row in table}, {row.model for row in table}
    if gpu is not None:
        chips = _matching("GPU", chip(gpu), gpu, {row.gpu: chip(row.gpu) for row in table})
    if model is not None:
        # Matched against every net, so that a net absent on this GPU is not taken for one whose name holds it.
        models = _matching("model", model, model, {name: name for name in models})
    found = [row for row in table if chip(row.gpu) in chips and row.model in models]
    if not found:
        others = ", ".join(sorted({row.gpu for row in table if row.model in models})[:6])
        raise InputError(f"no step of {model!r} recorded on GPU {gpu!r}; recorded on: {others}")
    return found


def find_step(
    gpu: str = DEFAULT_GPU,
    model: str = DEFAULT_MODEL,
    batch_size: int | None = None,
    precision: str | None = None,
) -> StepChoice:
    """The recorded step time that best stands for ``model`` on ``gpu``.

    Names are forgiving (``a100``, ``NVIDIA A100-SXM4-80GB``, ``resnet50``), and another form factor or memory size of
    the chip is taken where the one asked for has no better record (`_rank`). ``batch_size`` is samples per GPU per
    step, the recorded one when ``None``; another scales the time in proportion, at the recorded throughput.

    Raises:
        InputError: an unknown or ambiguous name (nearest known ones listed), a batch size below 1, a precision
            with no record, or nothing but loader-bound records.
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch size {batch_size} is not positive; give samples per GPU per step, such as 256")
    found = select_rows(gpu, model)
    _one("GPU", gpu, {chip(row.gpu): row.gpu for row in found})
    _one("model", model, {row.model: row.model for row in found})
    usable = [row for row in _of_precision(found, precision) if row.kind != LOADER_BOUND]
    if not usable:
        what = f"{model!r} on {gpu!r} in precision {precision or 'any'!r}"
        raise InputError(f"every record of {what} is limited by its loader; name another one, or time a step")
    return _scaled(min(usable, key=lambda row: _rank(row, gpu, batch_size)), gpu, batch_size)


def recorded_source(found: StepChoice) -> AcceleratorSource:
    """What a profile says of a step that is a record of the catalogue."""
    return AcceleratorSource(
        kind="catalogue",
        provenance=f"catalogue: {found.provenance}",
        uncertainty=found.uncertainty / _DEVIATIONS,
        step_time_s=found.step_time_s,
        name=found.row.gpu,
    )


def _of_precision(rows: list[StepRow], precision: str | None) -> list[StepRow]:
    families = {precision_family(row.precision) for row in rows}
    wanted = families if precision is None else {precision_family(precision)} & families
    if not wanted:
        what = f"{rows[0].model} on {rows[0].gpu}"
        raise InputError(f"no step recorded in {precision!r} for {what}; recorded: {', '.join(sorted(families))}")
    return [row for row in rows if precision_family(row.precision) in wanted]


def _rank(row: StepRow, gpu: str, batch_size: int | None) -> tuple[float, ...]:
    """The best row has the least."""
    return (
        row.kind in ("estimate", "emulated"),  # stand-ins come last
        PRECISIONS.index(precision_family(row.precision)),
        list(CERTAINTIES).index(row.certainty),
        list(KINDS).index(row.kind),
        _form_gap(gpu, row.gpu),
        _doublings(row, batch_size or row.batch_size),
        row.n_gpus,  # fewer exchange less of the gradients in the step
        -row.throughput_samples_per_s,  # a lower one was held back by something
    )


def _doublings(row: StepRow, batch_size: int) -> float:
    return abs(math.log2(batch_size / row.batch_size))


def _scaled(row: StepRow, gpu: str, batch_size: int | None) -> StepChoice:
    batch = row.batch_size if batch_size is None else batch_size
    spread = KINDS[row.kind] + CERTAINTIES[row.certainty] + _form_gap(gpu, row.gpu)
    spread = min(_WIDEST, spread + _PER_DOUBLING * _doublings(row, batch))
    time = row.step_time_s * batch / row.batch_size
    record = (
        f"{row.model} on {row.gpu}, {row.precision}, {format_duration(row.step_time_s)} per step of {row.batch_size}"
        f" ({row.certainty}, {row.kind}; {row.framework}; input: {row.input_path}; host: {row.host})"
    )
    parts = [record]
    if batch != row.batch_size:
        rate = f"{row.throughput_samples_per_s:.4g} samples/s"
        parts.append(f"scaled in proportion to batch {batch} at {rate}: {format_duration(time)}")
    if _form_gap(gpu, row.gpu):
        parts.append(f"{gpu} asked for: another form of the same chip taken")
    parts += [f"judged within ±{spread:.0%}", f"source: {row.source}"]
    return StepChoice(row, time, spread, "; ".join(parts))


def _tokens(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", _NOISE.sub(" ", name.lower()))


@lru_cache(maxsize=1024)
def chip(gpu: str) -> str:
    """The GPU's name without vendor words, form factor and memory size: ``a100``, ``rtx 3090``."""
    return " ".join(_tokens(_FORM.sub(" ", gpu.lower())))


def _form_gap(asked: str, recorded: str) -> float:
    """What differing form factor and memory words add to the uncertainty; 0 where none is recorded."""
    recorded_forms = _FORM.findall(recorded.lower())
    words = [word.replace(" ", "") for word in _FORM.findall(asked.lower())]
    missing = [word for word in words if not any(form.startswith(word) for form in recorded_forms)]
    return sum(_MEMORY_GAP if word.endswith("gb") else _FORM_GAP for word in missing if recorded_forms)


def _matching(what: str, query: str, asked: str, key_of_name: dict[str, str]) -> set[str]:
    """The keys that a query may mean: the same words, else a beginning at a word boundary, else all its words."""
    words = _tokens(query)
    joined = "".join(words)
    split = {key: _tokens(key) for key in key_of_name.values()}
    same = {key for key, parts in split.items() if "".join(parts) == joined}
    starts = {key for key, parts in split.items() if joined in accumulate(parts)}
    holds = {key for key, parts in split.items() if words and set(words) <= set(parts)}
    found = same or starts or holds
    if not found:
        raise InputError(f"unknown {what} {asked!r}; nearest known: {nearest(asked, key_of_name)}")
    return found


def nearest(asked: str, names: Iterable[str]) -> str:
    """The few names that are most like the one asked for, or the first ones."""
    known = {name.lower(): name for name in sorted(names)}
    near = difflib.get_close_matches(asked.lower(), known, n=4, cutoff=0.3) or list(known)[:4]
    return ", ".join(known[name] for name in near)


def _one(what: str, asked: str, found: dict[str, str]) -> None:
    if len(found) > 1:
        names = ", ".join(sorted(found.values())[:6])
        raise InputError(f"{what} {asked!r} may mean {len(found)} of those recorded: {names}; name one of them")
