"""``coresim validate``: run the real input pipeline here and hold it beside the prediction."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coresim.cli.attach import DEFAULT_LEDGER, add_attach, validate_program
from coresim.cli.common import (
    check_figure,
    check_writable,
    command_line,
    engine_named,
    progress_on_stderr,
    require,
    save,
    show,
)
from coresim.cli.flags import add_flags, share, whole_number
from coresim.cli.latest import keep
from coresim.errors import EXIT_ANSWERED, EXIT_NOT_TRUSTED, CoresimError, MissingPartError
from coresim.files import locked
from coresim.measure.host import read_host
from coresim.units import LONG, parse_duration
from coresim.validate.grid import Grid, fixed_step, in_training, job_grid, load_grid, quick_grid

if TYPE_CHECKING:
    from coresim.validate.ledger import Ledger
    from coresim.workloads.named import WorkloadSpec

#: What must be the same for a validation to be resumed.
_SAME = ("grid_sha256", "host_fingerprint", "accelerator", "versions")


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "validate",
        help="run the real loader here and compare it with the prediction",
        description="Calibrate inside the running loader, predict, then run the real pipeline at other settings, and"
        " print predicted beside measured. The accelerator is your step or a net in training; else an emulated one,"
        " which blocks for the step time. Needs torch. Exit code 5: not to be trusted here.",
    )
    job = parser.add_argument_group("what to run")
    add_flags(job, "workload", "dataset", "collate", "worker-init")
    job.add_argument("--batch-size", type=whole_number(0), metavar="N",
                     help="samples per batch (default: 32; with --dataset those of its DataLoader, or 64)")  # fmt: skip
    job.add_argument("--step", metavar="MODULE:NAME",
                     help="train with your own: train_step(batch), or a function that returns one")  # fmt: skip
    job.add_argument("--model", metavar="NAME",
                     help="train a net, such as resnet50 (the default for images where a CUDA device is)")  # fmt: skip
    job.add_argument("--precision", metavar="NAME", help="of the net: bf16 or fp32")
    job.add_argument("--step-time", metavar="TIME",
                     help="an emulated accelerator's step; default without a device: around the knee")  # fmt: skip
    job.add_argument("--grid", metavar="FILE", help="a declared grid (TOML) instead, over built-in workloads")
    job.add_argument("--quick", action="store_true",
                     help="three numbers of workers: two minutes, five where a batch takes a second")  # fmt: skip
    parser.add_argument("--max-error", type=share, default=0.05, metavar="SHARE",
                        help="mean error of GPU idle above which the answer is not trusted (default 5%%)")  # fmt: skip
    parser.add_argument(
        "-o", "--output", default=DEFAULT_LEDGER, metavar="FILE",
        help="the ledger (default: %(default)s); an unfinished one of the same grid, host and versions is resumed;"
        " any other ledger there is renamed to FILE.old",
    )  # fmt: skip
    parser.add_argument("--device", default="cuda", metavar="NAME", help="where nets and steps train (default: cuda)")
    add_flags(parser, "build-timeout")
    parser.add_argument("--time", metavar="TIME", help="begin no trial after so long; the same command goes on later")
    parser.add_argument("--trial-time", metavar="TIME",
                        help="how long each trial lasts (default: 2.5 s); longer ones differ less")  # fmt: skip
    parser.add_argument("--figure", metavar="FILE", help="also draw predicted over measured (.png, .svg, .pdf)")
    add_attach(parser)
    add_flags(parser, "json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Validate, write ledger and figure, print; 0 if the prediction holds, 5 if it is not to be trusted."""
    if args.command:
        return validate_program(args)
    own = (args.dataset, args.workload, args.collate, args.worker_init, args.quick or None, args.batch_size,
           args.step, args.model, args.precision, args.step_time)  # fmt: skip
    require(not (args.grid and any(flag is not None for flag in own)),
            "--grid: the file says what to run; leave out the other flags of 'what to run'")  # fmt: skip
    require(not (args.dataset and args.workload), "--dataset and --workload: each says what to run; leave one out")
    steps = [f"--{name}" for name in ("step", "model", "step-time") if getattr(args, name.replace("-", "_"))]
    require(len(steps) < 2, f"{' and '.join(steps)}: each says what a step is; leave all but one out")
    require(not (args.precision and not args.model), "--precision: of which net? say --model too")
    check_writable(args.output)
    if args.figure:
        check_figure(args.figure)
    with locked(args.output), tempfile.TemporaryDirectory(prefix="coresim-") as folder:
        grid, specs = _job(args, folder)
        _need_torch()
        ledger = _validate(args, grid, specs)
    try:
        return _print(args, ledger)
    finally:  # drawn though the ledger could not be written
        if args.figure:
            from coresim.report.figures import plot_validation, save_figure

            save_figure(plot_validation(ledger), args.figure)


def _need_torch() -> None:
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise MissingPartError("validate: torch is not installed, and the real loader is torch's; pip install torch")


def _job(args: argparse.Namespace, folder: str) -> tuple[Grid, dict[str, WorkloadSpec]]:
    from coresim.workloads.named import WorkloadSpec
    from coresim.workloads.registry import DEFAULT, target_of

    if args.grid:
        grid = load_grid(args.grid)
        names = dict.fromkeys(setting.workload for setting in grid.settings)
        return grid, {name: WorkloadSpec(target_of(name), str(Path(folder, name))) for name in names}
    name = args.dataset or args.workload or DEFAULT
    target, data = args.dataset or target_of(name), str(Path(folder, "data"))
    spec = WorkloadSpec(target, data, collate=args.collate, worker_init=args.worker_init)
    cores = max(1, int(read_host(load_window=0.0).usable_cores))
    require(args.batch_size != 0, "--batch-size: at least 1 is needed")
    size = args.batch_size or (0 if args.dataset else 32)
    grid = (quick_grid if args.quick else job_grid)(name, size, cores)
    if args.step_time:
        grid = fixed_step(grid, parse_duration(args.step_time, "--step-time"))
    model, precision = _trained(args)
    if model:
        emulated = args.device if args.device.startswith("emulated") else ""
        grid = in_training(grid, model, precision, args.device.startswith("cuda"), emulated)
    return grid, {name: spec}


def _trained(args: argparse.Namespace) -> tuple[str, str]:
    """The net or step in training and its precision; empty where the accelerator is emulated."""
    from coresim.measure.parts import optional_parts
    from coresim.measure.step_time import StepRequest, has_cuda
    from coresim.workloads.registry import DEFAULT

    asked = args.step or args.model
    own = args.step_time or args.dataset or (args.workload or DEFAULT) != DEFAULT
    if not asked and own:
        return "", ""
    if args.device.startswith("cuda") and not has_cuda(optional_parts()):
        if asked:
            raise MissingPartError(
                f"validate: no CUDA device that torch can use is here to train {asked} on; give --step-time for an "
                "emulated accelerator, or train on the CPU with --device cpu"
            )
        return "", ""
    if args.step:
        require(":" in args.step, f"--step {args.step}: write package.module:name")
        return args.step, ""
    return StepRequest(model=args.model, precision=args.precision, device=args.device).trained


def _validate(args: argparse.Namespace, grid: Grid, specs: dict[str, WorkloadSpec]) -> Ledger:
    from coresim.measure.campaign import make_data
    from coresim.validate.session import validate
    from coresim.validate.trials import TRIAL_S

    engine = engine_named("fast")
    seconds = parse_duration(args.time, "--time", LONG) if args.time else None
    trial_s = parse_duration(args.trial_time, "--trial-time", LONG) if args.trial_time else TRIAL_S
    build_s = parse_duration(args.build_timeout, "--build-timeout", LONG) if args.build_timeout else None
    require(trial_s > 0, "--trial-time: must be more than 0")
    ledger = _begun(args, grid)
    with progress_on_stderr() as progress, _told_what_is_kept(args.output, grid):
        for spec in specs.values():
            if not args.dataset:
                make_data(spec)
        ledger = validate(
            grid,
            specs,
            ledger,
            engine,
            device=args.device,
            trial_s=trial_s,
            seconds=seconds,
            build_timeout=build_s,
            save=partial(_save, args),
            progress=progress,
            notice=lambda line: print(f"coresim: {line}", file=sys.stderr),
        )
    _save(args, ledger)
    if args.unsaved:
        args.unsaved = CoresimError(f"{args.unsaved}; {_kept(args.output, grid)}; make room there and run it again")
    try:
        keep(ledger)
    except CoresimError as error:
        print(f"coresim: {error}; recommend will not show this validation", file=sys.stderr)
    return ledger


def _save(args: argparse.Namespace, ledger: Ledger) -> None:
    """Save what was measured so far. A full disk does not end the trials: it is told at once and after the answer."""
    before, args.unsaved = getattr(args, "unsaved", None), None
    if not save(args, ledger, args.output) and before is None:
        print(f"coresim: {args.unsaved}; trials go on, and the answer still comes", file=sys.stderr)


def _kept(path: str, grid: Grid) -> str:
    """How much of the grid the file holds."""
    from coresim.validate.ledger import load_ledger
    from coresim.validate.session import unsettled

    left = unsettled(grid, load_ledger(path)) if Path(path).exists() else grid.settings
    return f"{len(grid.settings) - len(left)} of {len(grid.settings)} settings are kept in {path}"


@contextlib.contextmanager
def _told_what_is_kept(path: str, grid: Grid) -> Iterator[None]:
    """After an interrupt or a failure, tell the user that the work so far is not lost."""
    try:
        yield
    except (KeyboardInterrupt, CoresimError):
        if Path(path).exists():
            print(f"coresim: {_kept(path, grid)}; the same command goes on", file=sys.stderr)
        raise


def _begun(args: argparse.Namespace, grid: Grid) -> Ledger:
    """The ledger of an interrupted run of the same grid here, else an empty one; another file there is renamed."""
    from coresim.validate.ledger import empty_ledger, load_ledger
    from coresim.validate.session import unsettled

    fresh = empty_ledger(read_host(load_window=0.0), grid, command_line(), args.device)
    if not Path(args.output).exists():
        return fresh
    found = load_ledger(args.output)
    left = unsettled(grid, found)
    same = all(getattr(found, name) == getattr(fresh, name) for name in _SAME)
    if same and left:
        done = len(grid.settings) - len(left)
        print(f"coresim: {args.output}: going on after {done} of {len(grid.settings)} settings", file=sys.stderr)
        return found
    aside = f"{args.output}.old"
    os.replace(args.output, aside)
    what = "a finished validation" if same else "a validation of another grid, host, device or version"
    print(f"coresim: {args.output}: {what}; kept as {aside}", file=sys.stderr)
    return fresh


def _print(args: argparse.Namespace, ledger: Ledger) -> int:
    from coresim.report.validation import trusted, validation_document, validation_text

    whole = " (not whole)" if args.unsaved else ""
    files = f"ledger: {args.output}{whole}" + (f", figure: {args.figure}" if args.figure else "")
    text = f"{validation_text(ledger, args.max_error)}\n\n{files}"
    show(args, validation_document(ledger, args.max_error), text)
    return EXIT_ANSWERED if trusted(ledger, args.max_error) else EXIT_NOT_TRUSTED
