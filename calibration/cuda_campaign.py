"""The campaign on a machine with a CUDA device: profiles, then real training on the declared grid, part by part.

Runs from a checkout with nothing but Python, torch, numpy, Pillow and psutil, and reaches nothing outside::

    python calibration/cuda_campaign.py --name h200 --minutes 8

Where the device is there for minutes: ``--trials-only --grid calibration/cuda_rest_grid.toml``.

Each call makes one part of at most ``--minutes``, keeps every trial at once, goes on where the last one stopped, and
ends with the table so far. When the grid is done, it prints the table and nothing else, and
`python calibration/state.py` puts the ledger on the page.

Exit codes: 0 the grid is done, 5 it is and no trial was undisturbed, 6 there is more to do; else that of the verb that
failed (1 it failed, 2 bad input, 3 something is missing, such as a CUDA device, 130 interrupted).
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from coresim.errors import EXIT_INTERRUPTED, EXIT_NOT_TRUSTED, CoresimError, InputError  # noqa: E402 (of this checkout, which need not be installed)

if TYPE_CHECKING:
    from coresim.validate.grid import Grid
    from coresim.validate.ledger import Ledger

#: Models whose step, launch, copies, slowdown beside busy cores, s(k) and bandwidth go into a profile of their own.
PROFILES = (("resnet18", "bf16", 64), ("resnet50", "fp32", 128), ("resnet50", "bf16", 128), ("vit_b_16", "bf16", 64),
            ("tiny", "fp32", 32))  # fmt: skip
#: What is left of a part when a profile is begun, s: one takes about 15 s, and compiling and warming up come on top.
PROFILE_S = 90.0
#: A calibration prepares some 370 batches with one worker: 240 s for 128 pictures at 5 ms each; predicting adds 30 s.
CALIBRATION_S = 270.0
#: The last trial of a part is begun so long before its end, and what still runs then is interrupted, s.
TRIAL_S, STOP_S = 30.0, 10.0
#: What must be left of a part to begin the grid, and the shortest part: another might never come to a trial.
LEAST_S = CALIBRATION_S + TRIAL_S + STOP_S
LEAST_MINUTES = 6.0
MORE = 6
#: A verb has answered: yes, with no core count, or that it is not to be trusted.
ANSWERED = (0, 4, 5)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make one part; what went wrong is one line."""
    try:
        return _part(_parsed(arguments))
    except CoresimError as error:
        print(f"cuda_campaign: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("cuda_campaign: interrupted; all trials so far are kept", file=sys.stderr)
        return EXIT_INTERRUPTED


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="what the machine is called: begins the names of the files")
    parser.add_argument("--minutes", type=float, default=8.0, help="length of this part (default 8)")
    parser.add_argument("--out", type=_path, default=HERE, help="folder of the files (default: this one)")
    parser.add_argument("--device", default="cuda", help="where to train (default: cuda)")
    parser.add_argument("--trials-only", action="store_true", help="no profiles: where time is short")
    parser.add_argument("--grid", type=_path, default=HERE / "cuda_grid.toml", help="the declared grid")
    return parser.parse_args(arguments)


def _path(text: str) -> Path:
    """From where this was called: the verbs run in the checkout."""
    return Path(text).resolve()


def _part(args: argparse.Namespace) -> int:
    from coresim.validate.grid import load_grid  # noqa: PLC0415 (slow to import, and --help needs none of it)

    until = time.monotonic() + 60.0 * args.minutes
    grid, path = load_grid(args.grid), args.out / f"{args.name}.ledger.json"
    ledger = _ledger(path, grid)
    if ledger is not None and not unsettled(grid, ledger):
        _print(ledger)
        return _outcome(ledger)
    if args.minutes < LEAST_MINUTES:
        raise InputError(
            f"--minutes {args.minutes:g}: a calibration and a trial may not fit; at least {LEAST_MINUTES:g}"
        )
    failed = 0 if args.trials_only else _profiles(args, until)
    if until - time.monotonic() < LEAST_S:
        print("more to do: run the same command again")
        return MORE
    return _validate(args, grid, path, until) or failed


def _outcome(ledger: Ledger) -> int:
    lost = len(ledger.points) - len(ledger.scored)
    print("the grid is done" + (f"; {lost} settings never ran undisturbed" if lost else ""))
    return 0 if ledger.scored else EXIT_NOT_TRUSTED


def _profiles(args: argparse.Namespace, until: float) -> int:
    """Measure the profiles that are not there, as long as there is time; the exit code of one that failed, or 0."""
    failed = 0
    for model, precision, batch_size in PROFILES:
        path = args.out / f"{args.name}-{model}-{precision}.profile.json"
        if path.exists() or until - time.monotonic() < PROFILE_S:
            continue
        flags = ["--model", model, "--precision", precision, "--batch-size", str(batch_size), "--device", args.device]
        code = coresim(until, "measure", "--quick", *flags, "-o", str(path))
        if code == 1:  # of this model alone
            print(f"cuda_campaign: {path.name}: not measured; going on without it", file=sys.stderr)
            failed = code
        elif code not in ANSWERED and not _over(code, until):
            raise Failed("measure", code)
    return failed


def _validate(args: argparse.Namespace, grid: Grid, path: Path, until: float) -> int:
    """Make trials until the part is over; 0 when the grid is done, else `MORE`."""
    before = _trials(_ledger(path, grid))
    seconds = until - time.monotonic() - TRIAL_S - STOP_S
    figure = ["--figure", str(figure_of(path))] if _can_draw() else []
    code = coresim(until, "validate", "--grid", str(args.grid), "--device", args.device, "--time", f"{seconds:.0f} s",
                   "-o", str(path), *figure)  # fmt: skip
    if code not in ANSWERED and not _over(code, until):
        raise Failed("validate", code)
    ledger = _ledger(path, grid)
    left = unsettled(grid, ledger)
    if ledger is not None and not left:
        return _outcome(ledger)
    if ledger is not None and code == EXIT_INTERRUPTED:  # it could not print it
        _print(ledger)
    if _trials(ledger) == before:
        raise CoresimError(f"no trial was made in this part, {left} settings are left; give it more --minutes")
    print(f"{left} settings are left: run the same command again")
    return MORE


def figure_of(path: Path) -> Path:
    """The figure beside a ledger; `state.py` calls it the same."""
    return path.with_name(f"{path.name.removesuffix('.ledger.json')}.svg")


def _over(code: int, until: float) -> bool:
    """Whether a verb was interrupted because the part is over."""
    return code == EXIT_INTERRUPTED and until - time.monotonic() <= STOP_S


def _ledger(path: Path, grid: Grid) -> Ledger | None:
    """The ledger so far, which another grid's or another machine's must not overwrite."""
    from coresim.measure.host import read_host  # noqa: PLC0415 (as above)
    from coresim.validate.ledger import load_ledger  # noqa: PLC0415

    if not path.exists():
        return None
    ledger = load_ledger(path)
    if ledger.grid_sha256 != grid.sha256:
        raise InputError(f"{path}: of another grid ({ledger.grid}); take another --name or move it away")
    if unsettled(grid, ledger) and ledger.host_fingerprint != read_host(load_window=0.0).fingerprint:
        raise InputError(f"{path}: begun on another machine ({ledger.cpu_model}); take another --name or move it away")
    return ledger


def unsettled(grid: Grid, ledger: Ledger | None) -> int:
    """Settings of the grid that fit here and lack undisturbed trials, and still have attempts."""
    from coresim.validate.session import fitting, unsettled  # noqa: PLC0415 (as above)

    return len(fitting(unsettled(grid, ledger) if ledger else grid.settings))


def _trials(ledger: Ledger | None) -> int:
    return sum(len(point.trials) for point in ledger.points) if ledger else 0


def _print(ledger: Ledger) -> None:
    from coresim.report.validation import validation_text  # noqa: PLC0415 (as above)

    print(validation_text(ledger))


def _can_draw() -> bool:
    try:
        importlib.import_module("matplotlib.pyplot")
    except ImportError:
        return False
    return True


class Failed(CoresimError):
    """A verb failed and said why in a line of its own; its exit code is the campaign's."""

    def __init__(self, verb: str, code: int) -> None:
        super().__init__(f"coresim {verb} ended with {code}, see above; mend that and run the same command again")
        self.exit_code = max(1, code)  # below 0: ended by a signal


def coresim(until: float, *arguments: str) -> int:
    """Run a verb from this checkout and interrupt it `STOP_S` before that moment; its exit code."""
    verb = subprocess.Popen([sys.executable, "-m", "coresim", *arguments], cwd=HERE.parent)
    try:
        return verb.wait(max(0.0, until - STOP_S - time.monotonic()))
    except subprocess.TimeoutExpired:
        return EXIT_INTERRUPTED
    finally:
        _end(verb)


def _end(verb: subprocess.Popen[bytes]) -> None:
    """Let it end its processes; what it had kept stays."""
    if verb.poll() is None:
        verb.terminate()
        try:
            verb.wait(STOP_S)
        except subprocess.TimeoutExpired:
            verb.kill()
            verb.wait()


if __name__ == "__main__":
    sys.exit(main())
