"""``coresim measure``: the micro-benchmarks alone, kept in a profile for later and for other machines."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coresim.cli.common import save, show
from coresim.cli.flags import whole_number
from coresim.errors import InputError
from coresim.units import format_bytes, format_duration, parse_duration, visible

if TYPE_CHECKING:
    from coresim.measure.campaign import Request
    from coresim.model.profile import Profile

DEFAULT_OUTPUT = "profile.json"
#: Flags that are fields of a request as they stand.
_ASKED = (
    "dataset", "batch_size", "collate", "worker_init", "step", "gpu", "model", "precision", "device", "cpu_step",
    "quick",
)  # fmt: skip
FIGURES = (".png", ".svg", ".pdf")
#: Measured times that are told when all is measured; those of a loop are a program's that trains on a device.
_TOLD = ("prepare.", "receive.cpu", "accelerator.launch", "loop.")
DATASET_HELP = (
    "your own: a dataset, DataLoader or LightningDataModule, or what gives one when called; path/to/file.py:NAME too"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say what to measure; `request_from` reads them."""
    job = parser.add_argument_group("what to measure")
    job.add_argument("--workload", metavar="NAME", help="a built-in job, such as images (the default); see workloads")
    job.add_argument("--dataset", metavar="MODULE:NAME", help=DATASET_HELP)
    job.add_argument("--batch-size", type=whole_number(1), metavar="N", help="samples per batch and GPU (images: 256)")
    job.add_argument("--collate", metavar="MODULE:NAME", help="your own collate function")
    job.add_argument("--worker-init", metavar="MODULE:NAME", help="your own worker_init_fn, which every worker calls")
    step = parser.add_argument_group("the training step (measured where there is a CUDA device, else a record)")
    step.add_argument(
        "--step", metavar="MODULE:NAME", help="your own: train_step(batch), or a function that returns one"
    )
    step.add_argument("--step-time", metavar="TIME", help='give it, with a unit, such as "98 ms"')
    step.add_argument("--gpu", metavar="NAME", help='take a recorded step of this GPU, such as "a100"; see catalogue')
    step.add_argument("--model", metavar="NAME", help='of this net, such as "resnet50" (the default)')
    step.add_argument("--precision", metavar="NAME", help="in this precision, such as bf16 or fp32")
    step.add_argument("--device", metavar="NAME", help="where to time the step: cuda, cuda:N, or cpu")
    step.add_argument(
        "--cpu-step", action="store_true",
        help="time the net of --model, or your --step, on the CPU too, for whatif's no-gpu: up to a minute more",
    )  # fmt: skip
    time = parser.add_argument_group("how long to measure")
    time.add_argument(
        "--build-timeout", metavar="TIME", help="give up a data set that takes longer than this to build (no limit)"
    )
    time.add_argument(
        "--quick", action="store_true", help="about 10 s instead of 28 s, longer where batches are slow: a first look"
    )
    time.add_argument("--budget", metavar="TIME", help='time to measure the host\'s part, such as "2 min" (28 s)')


def request_from(args: argparse.Namespace) -> Request:
    """What `add_arguments` options ask for.

    Raises:
        InputError: a time without a unit, an unknown name, or options that exclude each other.
    """
    from coresim.measure.campaign import Request
    from coresim.workloads.registry import DEFAULT

    if args.dataset is not None and args.workload is not None:
        raise InputError("--dataset and --workload: each says what to measure; leave one out")
    times = {name: getattr(args, name) for name in ("step_time", "build_timeout", "budget")}
    given: dict[str, Any] = {
        name: parse_duration(time, f"--{name.replace('_', '-')}") for name, time in times.items() if time is not None
    }
    asked = {name: getattr(args, name) for name in _ASKED}
    return Request(workload=args.workload or DEFAULT, **asked, **given)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb and its options."""
    text = "Measure what preparing samples costs here, and the training step, and keep it in a profile."
    parser = subparsers.add_parser("measure", help="measure once, keep the profile", description=text)
    from coresim.cli.attach import add_attach

    add_arguments(parser)
    add_attach(parser)
    parser.add_argument(
        "-o", "--output", default=DEFAULT_OUTPUT, metavar="FILE", help="where to write (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the profile too, as JSON, alone on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, write the profile, and say what was measured.

    Raises:
        InputError: what the request names is wrong, or the output cannot be written; the latter is told before
            measuring.
        MissingPartError: the request needs torch or a CUDA device.
    """
    from coresim.cli.attach import measured

    check_writable(args.output)
    profile = measured(args)
    kept = save(args, profile, args.output)
    return show(args, profile.to_dict(), summary(profile, args.output if kept else None))


def measure_profile(request: Request) -> Profile:
    """Run the campaign with progress on stderr and this process's command line as its provenance."""
    import shlex

    from coresim.measure.campaign import run_campaign

    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    with progress_on_stderr() as progress:
        return run_campaign(request, progress=progress, command=command)


def check_writable(path: str) -> None:
    """InputError where ``path`` cannot be written: said before minutes of measuring, not after."""
    target = Path(path)
    if target.exists() and not target.is_file():
        raise InputError(f"cannot write {target}: it is a {'folder' if target.is_dir() else 'device'}; name a file")
    if not target.parent.is_dir():
        raise InputError(f"cannot write {target}: no folder {target.parent}; make it first")
    try:  # no mode of the folder tells of a disk that is full or read-only
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}; choose a folder that you can write to") from None


def check_figure(path: str) -> None:
    """InputError where no figure can be written to ``path``: a form that is not known, or as `check_writable`."""
    if Path(path).suffix not in FIGURES:
        raise InputError(f"{path}: a figure is written as {', '.join(FIGURES)}; end its name with one of them")
    check_writable(path)


@contextmanager
def progress_on_stderr() -> Iterator[Callable[[str, float], None]]:
    """A listener for `run_campaign`: a bar on a terminal, else one line per part."""
    if not sys.stderr.isatty():
        yield _one_line_per_part()
        return
    from tqdm import tqdm

    form = "{desc:<36} {percentage:3.0f}% |{bar}| {elapsed}"
    with tqdm(total=1.0, bar_format=form, file=sys.stderr, leave=False) as bar:

        def listen(what: str, fraction: float) -> None:
            bar.set_description_str(visible(what), refresh=False)
            # A second phase, such as what a plan asks for, begins at nothing again.
            bar.n = fraction
            bar.refresh()

        yield listen


def _one_line_per_part() -> Callable[[str, float], None]:
    told = ""

    def listen(what: str, fraction: float) -> None:
        nonlocal told
        part = what.partition(",")[0]  # what follows a comma counts on
        if part != told and fraction < 1.0:
            print(visible(f"{part} ..."), file=sys.stderr, flush=True)
            told = part

    return listen


def summary(profile: Profile, path: str | None) -> str:
    """What was measured, in a few lines, for people; ``path``: where it was written, if it was."""
    lines = [f"{profile.workload}, batch {profile.batch_size} ({format_bytes(profile.bytes_per_batch)})"]
    if profile.settings is not None:
        lines.append(f"today's settings: {profile.settings}")
    for found in profile.measurements:
        if found.unit in ("s/sample", "s/batch", "s/step") and found.name.startswith(_TOLD):
            lines.append(f"  {found.name:<22} {format_duration(found.mean):>8} per {found.unit[2:]}")
    count = round(profile.host.usable_cores)
    speed = profile.speed[min(max(count, 1), len(profile.speed)) - 1]
    lines.append(f"  with {count} cores at work, each runs at {speed:.0%} of its speed alone")
    lines.append(f"step: {profile.accelerator.basis}")
    lines += [f"caution: {what}: {value}; {remedy}" for what, value, remedy in profile.cautions]
    return "\n".join([*lines, *([f"written to {path}"] if path else [])])
