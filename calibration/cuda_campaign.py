"""The campaign on a machine with a CUDA device: profiles, then real training on the declared grid, part by part.

Runs from a checkout with nothing but Python, torch, numpy, Pillow, psutil and numba, and reaches nothing outside::

    python calibration/cuda_campaign.py --name h200 --minutes 8

Each call makes one part of at most ``--minutes``, keeps every trial at once, goes on where the last one stopped, and
ends with the table so far. When the grid is done, `python calibration/state.py` puts the ledger on the page.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Models whose step, launch, copies, slowdown beside busy cores, s(k) and bandwidth go into a profile of their own.
PROFILES = (("resnet18", "bf16", 64), ("resnet50", "fp32", 128), ("resnet50", "bf16", 128), ("vit_b_16", "bf16", 64),
            ("tiny", "fp32", 32))  # fmt: skip
LEAST_S = 120.0


def main() -> int:
    """Make one part; 0 when all of the campaign is done, 6 when there is more to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="what the machine is called: begins the names of the files")
    parser.add_argument("--minutes", type=float, default=8.0, help="length of this part (default 8)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the files (default: this one)")
    parser.add_argument("--device", default="cuda", help="where to train (default: cuda)")
    parser.add_argument("--grid", type=Path, default=HERE / "cuda_grid.toml", help="the declared grid")
    args = parser.parse_args()
    until = time.monotonic() + 60.0 * args.minutes
    if _profiles(args, until):
        print("more to do: run the same command again")
        return 6
    return _validate(args, until - time.monotonic())


def _profiles(args: argparse.Namespace, until: float) -> bool:
    """Measure the profiles that are not there; whether time ran out before the last."""
    for model, precision, batch_size in PROFILES:
        path = args.out / f"{args.name}-{model}-{precision}.profile.json"
        if path.exists():
            continue
        if until - time.monotonic() < LEAST_S:
            return True
        flags = ["--model", model, "--precision", precision, "--batch-size", str(batch_size), "--device", args.device]
        _coresim("measure", "--quick", *flags, "-o", str(path))
    return until - time.monotonic() < LEAST_S


def _validate(args: argparse.Namespace, seconds: float) -> int:
    ledger = args.out / f"{args.name}.ledger.json"
    _coresim("validate", "--grid", str(args.grid), "--device", args.device, "--time", f"{seconds:.0f} s",
             "-o", str(ledger), "--figure", str(ledger.with_suffix(".svg")))  # fmt: skip
    from coresim.validate.grid import load_grid  # noqa: PLC0415 (found through the path that `_coresim` uses too)
    from coresim.validate.ledger import load_ledger  # noqa: PLC0415

    left = len(load_grid(args.grid).settings) - len(load_ledger(ledger).points)
    print(f"{left} settings are left: run the same command again" if left else "the grid is done")
    return 6 if left else 0


def _coresim(*arguments: str) -> None:
    """Run a verb from this checkout; its failure is told and does not end the part."""
    done = subprocess.run([sys.executable, "-m", "coresim", *arguments], cwd=HERE.parent, check=False)
    if done.returncode not in (0, 4, 5):
        print(f"coresim {arguments[0]} ended with {done.returncode}", file=sys.stderr)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    sys.exit(main())
