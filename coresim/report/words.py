"""How every text of an answer writes numbers, counts and long lines."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coresim.model.option import Option

if TYPE_CHECKING:
    from coresim.sim.estimate import Estimate

#: Characters of a line in a terminal.
WIDTH = 110


def percent(share: float) -> str:
    """A share for people: ``3.5 %``."""
    return f"{100 * share:z.1f} %"


def ranged(share: float, low: float, high: float) -> str:
    """A share with its interval: ``3.5 % [3.1, 3.9]``."""
    return f"{percent(share)} [{100 * low:z.1f}, {100 * high:z.1f}]"


def interval(estimate: Estimate) -> str:
    """GPU idle with its interval."""
    return ranged(estimate.gpu_idle, estimate.gpu_idle_low, estimate.gpu_idle_high)


def plural(count: float, word: str) -> str:
    """A count with its word: ``1 core``, ``2 cores``."""
    return f"{count:g} {word}{'' if count == 1 else 's'}"


def option_words(option: Option) -> str:
    """An option with its name: ``option 2 (overlapped)``."""
    return f"option {option} ({option.label})"


def wrapped(line: str, first: str, rest: str, width: int = WIDTH) -> str:
    """The line wrapped at ``width`` characters; ``first`` begins the first line, ``rest`` the others."""
    found = textwrap.fill(
        line.replace(" %", "\xa0%"), width, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return found.replace("\xa0%", " %")  # a number and its unit stay together


def csv_text(columns: Sequence[str], records: Iterable[Mapping[str, Any]], header: bool = True) -> str:
    """Records as CSV; an unknown value is empty, and numbers keep their full precision."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(records)
    return stream.getvalue()
