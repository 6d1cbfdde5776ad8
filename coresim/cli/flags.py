"""Flags that several verbs share, and how their values are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from coresim.model.keys import MOST, MOST_PARTS
from coresim.model.option import Option
from coresim.units import LARGEST, in_bounds, short


def option_number(text: str) -> Option:
    """An argparse type: the number of an option."""
    try:
        return Option(int(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{short(text)} is not an option; write 1, 2, 3") from None


def option_list(text: str) -> tuple[Option, ...]:
    """An argparse type: a list of options such as 2,3."""
    try:
        return tuple(sorted({Option(int(name)) for name in text.split(",")}))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of options; write 1,2,3 or some of them") from None


def whole_number(least: int, most: int = MOST) -> Callable[[str], int]:
    """An argparse type: a whole number from ``least`` to ``most``."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{short(text)} is not a whole number") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{short(value)} is not from {least} to {most:g}")
        return value

    return read


def fraction(text: str, example: str) -> float:
    """A number or a percentage; ``example``: what an error says to write."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{short(text)} is not a share; write {example}") from None


def share(text: str) -> float:
    """An argparse type: a share such as 0.05 or 5%."""
    value = fraction(text, "0.05 or 5%")
    if not (0 <= value <= 1 and in_bounds(value)):
        raise argparse.ArgumentTypeError(f"{short(text)} is not between 0 and 1; write 0.05 or 5%")
    return value


def positive(what: str) -> Callable[[str], float]:
    """An argparse type: a positive number, perhaps fractional; ``what`` names it in errors."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{short(text)} is not {what}") from None
        if not (value > 0 and in_bounds(value)):
            raise argparse.ArgumentTypeError(f"{short(text)} is not {what} above 0 and at most {LARGEST:g}")
        return value

    return read


#: Each flag as argparse takes it.
FLAGS: dict[str, dict[str, Any]] = {
    "workload": {"metavar": "NAME", "help": "a built-in job, such as images (the default); see workloads"},
    "dataset": {
        "metavar": "MODULE:NAME",
        "help": "your own: a dataset, DataLoader or LightningDataModule, or what gives one when called;"
        " path/to/file.py:NAME too",
    },
    "collate": {"metavar": "MODULE:NAME", "help": "your own collate function"},
    "worker-init": {"metavar": "MODULE:NAME", "help": "your own worker_init_fn, which every worker calls"},
    "build-timeout": {"metavar": "TIME", "help": "give up a data set that takes longer than this to build (no limit)"},
    "idle-target": {"type": share, "metavar": "SHARE", "help": "largest acceptable GPU idle (default 5%%)"},
    "confidence": {
        "type": share, "default": 0.9, "metavar": "SHARE",
        "help": "probability that the larger of the two core counts meets the target (default 90%%)",
    },
    "option": {
        "type": option_number, "metavar": "{1,2,3}", "default": Option.OVERLAPPED,
        "help": "organisation (default 2)",
    },
    "options": {
        "type": option_list, "metavar": "LIST",
        "help": "which options to consider, such as 1,2 (default: all that the preset can be; for a program after --:"
        " 2)",
    },
    "max-cores": {"type": whole_number(1, MOST_PARTS), "metavar": "N", "help": "largest core count per GPU to try"},
    "seed": {"type": whole_number(0), "default": 1, "metavar": "N", "help": "seed of all random draws (default 1)"},
    "engine": {
        "choices": ("fast", "reference"), "default": "fast", "help": "compiled kernel or SimPy reference",
    },
    "cold": {"action": "store_true", "help": "samples come from storage, as it was measured, not from the page cache"},
    "preset": {
        "metavar": "NAME",
        "help": "the framework's input pipeline, such as tf.data; the same as --set loader.preset=NAME"
        " (coresim presets)",
    },
    "storage": {
        "metavar": "NAME",
        "help": "samples come from this recorded tier, such as hdd-7200 or s3 (coresim storage); needs the bytes of a"
        " sample, which a profile knows",
    },
    "set": {
        "action": "append", "default": [], "metavar": "KEY=VALUE", "dest": "settings",
        "help": "override a key of the scenario or profile, such as 'accelerator.step=98 ms'; repeatable",
    },
    "json": {"action": "store_true", "help": "print one JSON object alone on stdout"},
}  # fmt: skip


def add_flags(parser: argparse._ActionsContainer, *names: str, **changes: Any) -> None:
    """Add the flags of these names; ``changes`` are argparse's own arguments, where a verb differs in one flag."""
    for name in names:
        parser.add_argument(f"--{name}", **(FLAGS[name] | changes))
