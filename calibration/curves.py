"""Published curves of work per second over workers, threads or cores, read from ``scaling_cases.csv``."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from coresim.errors import InputError
from coresim.model.speed import SpeedTable
from coresim.model.speed_draws import Evidence, SpeedPoint

CASES = Path(__file__).with_name("scaling_cases.csv")
#: How exactly a published rate is known: two digits, and a machine that nobody kept quiet.
PUBLISHED = 0.04


@dataclass(frozen=True)
class Curve:
    """One published curve: work per second by workers, threads or cores.

    Attributes:
        cap: what the consumer takes at the most.
        lock: whether it is Python threads under the interpreter's lock.
    """

    case: str
    source: str
    cores: int | None
    threads_per_core: int
    lock: bool
    given: dict[int, float]
    cap: float
    published: dict[int, float]


def load(path: Path = CASES) -> list[Curve]:
    """The curves of a file.

    Raises:
        InputError: the file cannot be read, or a row cannot be understood.
    """
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; name a file like {CASES.name}") from None
    curves: dict[str, Curve] = {}
    for number, row in enumerate(rows, start=2):
        try:
            curve = curves.setdefault(row["case"], _curve(row))
            value = float(row["published"])
            curve.published[_count(row["setting"])] = 1.0 / value if row["unit"] == "s" else value
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"{path}, line {number}: {error}; see the columns of {CASES.name}") from None
    return list(curves.values())


def _curve(row: dict[str, str]) -> Curve:
    given, cap = {}, math.inf
    for part in row["given"].split(", "):
        count, value = _given(part, row["unit"])
        if part.endswith("(consumer)"):
            cap = value
        else:
            given[count] = value
    cores, siblings = row.get("cores"), row.get("threads_per_core")
    return Curve(
        row["case"], row["source"], int(cores) if cores else None, int(siblings or 1), bool(row.get("lock")),
        given, cap, {},
    )  # fmt: skip


def _given(text: str, unit: str) -> tuple[int, float]:
    if text == "time on 1 thread":
        return 1, 1.0
    found = re.fullmatch(r"(\d+) \w+ ([\d.]+)(/s| s)(?: \(consumer\))?", text)
    if found is None:
        raise ValueError(f"given {text!r}: not like '12 workers 1864/s'")
    return int(found[1]), 1.0 / float(found[2]) if unit == "s" else float(found[2])


def _count(text: str) -> int:
    found = re.match(r"\d+", text)
    if found is None:
        raise ValueError(f"setting {text!r}: not like '24 workers'")
    return int(found[0])


def two_given(curve: Curve) -> Curve | None:
    """The same curve with its first published value given too, or None where that leaves nothing to predict."""
    first = min(curve.published)
    left = {count: value for count, value in curve.published.items() if count != first}
    # At the consumer's cap a value says nothing about the cores.
    given = {first: curve.published[first]} if curve.published[first] < 0.9 * curve.cap else {}
    return replace(curve, given=curve.given | given, published=left) if left else None


def evidence(curve: Curve) -> Evidence:
    """What a curve gives."""
    speeds = tuple(SpeedPoint(count, value / count, PUBLISHED) for count, value in sorted(curve.given.items()))
    return Evidence(speeds=speeds, cores=curve.cores, threads_per_core=curve.threads_per_core)


def rate_of(table: SpeedTable, threads: int, cores: int) -> SpeedPoint:
    """Work per second of so many busy threads on ``cores`` physical cores, in units of one core alone.

    Beyond the cores the threads are siblings, which add at most one to each core.
    """
    busy = min(threads, cores)
    shared = min(1.0, (threads - busy) / cores)
    value = busy * table.values[busy - 1] * (1.0 + shared * table.sibling)
    return SpeedPoint(threads, value, math.hypot(table.uncertainties[busy - 1], shared * table.sibling_uncertainty))
