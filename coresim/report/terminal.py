"""A recommendation in a terminal: the whole answer in ten lines, then the warnings, and with ``--verbose`` the rest."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from coresim.advise.recommend import Recommendation
from coresim.advise.verdict import GPU_BOUND
from coresim.report import doubt, text
from coresim.report.content import Facts, Section
from coresim.report.plain import answer_lines
from coresim.report.plan import evidence, facts
from coresim.report.provenance import merged, provenance_words
from coresim.report.words import WIDTH, interval, percent, plural, wrapped

if TYPE_CHECKING:
    from coresim.report.answer import Answer

#: Lines of the answer.
LINES = 10
#: How warnings begin that change the answer; what others are about widens it at the most.
CHANGING = (
    "a recorded step stands in",
    "a built-in step was timed",
    "the CUDA device here was not measured",
    "libraries run threads",
    "the quota stops",
    "affinity is far below",
    "the machine was busy while costs were measured",
    "the loop takes batches from several loaders",
    "/dev/shm is small",
)
#: How entries begin that are of little use in part.
WHOLE = ("With ", "Next: ")
#: Two standard uncertainties of a step from which on nothing is gained by measuring anything else.
VAGUE = 0.1


def answer_text(answer: Answer, verbose: bool = False) -> str:
    """The answer in ten lines, and behind them the warnings, or with ``verbose`` all of the evidence."""
    told = merged(answer.notes)
    first = [note for note in told if note.startswith(CHANGING)]
    block = "\n".join(_within(_entries(answer, first), {len(first)}))
    if verbose:
        full = tuple(fact for fact in facts(answer) if fact[0] != "Today")  # which the answer begins with
        return answer_lines(block, Section("The answer in full", (Facts(full),)), *evidence(answer))
    shown = " ".join(block.split())
    more = [note for note in told if note not in first or " ".join(note.split()) not in shown]
    more.append("--verbose shows the options, the curve and the evidence")
    return "\n".join([block, "", *(wrapped(line, "  ", "    ") for line in more)])


def _entries(told: Answer, warnings: Sequence[str]) -> list[str]:
    """What the first lines say, in their order."""
    answer = told.result
    headline, *nearest = text.headline(answer, told.step_provenance).splitlines()
    measure_first = doubt.doubt_line(answer)
    known = [(name, value) for name, value in told.subject if name not in ("measured", "loader")]
    about = "; ".join(f"GPU {value}" if name == "GPU" else value for name, value in known)
    settings = text.loader_text(answer)
    if answer.point.option == answer.scenario.preset.usual_option:
        settings = re.sub(r" \([^)]*\):", ":", settings, count=1)  # the first line says so already
    entries = [f"Warning: {warning}" for warning in warnings]
    *before, last = [headline, *nearest[-1:]]
    entries += [*before, f"{last.removesuffix('.')}; {doubt.rate_words(answer.per_rate)}."]
    entries += [measure_first] if measure_first else []
    entries += [f"On: {about}"] if about else []
    entries.append(f"How sure: {_sure(told)}")
    entries += [settings] if settings else []
    entries.append(f"What holds the GPU back: {_held(answer)}")
    return entries if measure_first else [*entries, f"Next: {next_step(answer)}"]


def _sure(told: Answer) -> str:
    answer = told.result
    checked = next((line for line in told.provenance if line.startswith("validated here")), None)
    parts = [f"{percent(answer.point.estimate.level)[:-4]} % interval {interval(answer.point.estimate)}"]
    if answer.meets_target:
        parts = [f"within the target with probability {answer.probability:.2f}"]
    parts.append(provenance_words(answer.scenario, told.step_provenance))
    parts.append("not checked against a real run here" if checked is None else checked.partition(",")[0])
    return "; ".join(part for part in parts if part)


def _held(answer: Recommendation) -> str:
    verdict = answer.verdict
    bound = verdict.name == GPU_BOUND
    parts = ["nothing, the job is GPU-bound" if bound else verdict.name]
    if verdict.next_bottleneck and verdict.next_bottleneck != verdict.name:
        following = "nothing" if verdict.next_bottleneck == GPU_BOUND else verdict.next_bottleneck
        parts.append(f"{'on a GPU twice as fast' if bound else 'without it'}: {following}")
    return "; ".join([*parts, *filter(None, [doubt.own_words(answer)])])


def next_step(answer: Recommendation) -> str:
    """The one thing to do now: what would meet the target, what makes the answer surer, or use it and check it."""
    step, own = answer.scenario.accelerator.step, answer.own_host
    if not answer.meets_target:
        return f"{answer.verdict.advice} (GPU idle would then be {percent(answer.verdict.idle_without)} at best)"
    if 2 * step.uncertainty >= VAGUE:
        return f"{doubt.CURES['step']}: it moves the answer most"
    if own is not None and own.point.estimate.gpu_idle > answer.scenario.target.gpu_idle:
        return f"coresim whatif shows what would help on this host's {plural(own.cores, 'core')}"
    if text.knows_no_lock(answer):
        share = "--set loader.gil=0.2 where they hold Python's lock for a fifth of the work"
        return f"--options 1,2 answers for worker processes; for threads, {share}"
    return "use these settings; coresim validate runs the real loader beside the prediction"


def _within(entries: Sequence[str], whole: Set[int] = frozenset()) -> list[str]:
    """Each entry in lines of the text's width, the longest cut until all together are `LINES` at the most.

    ``whole``: the places of entries that are not cut; those that begin as one of `WHOLE` are cut last.
    """
    kept = {place for place, entry in enumerate(entries) if entry.startswith(WHOLE)}
    most = [WIDTH * 3] * len(entries)

    def lines() -> list[list[str]]:
        cut = [_cut(entry, size) for entry, size in zip(entries, most, strict=True)]
        return [wrapped(line, "" if place == 0 else "  ", "    ").splitlines() for place, line in enumerate(cut)]

    while sum(map(len, found := lines())) > LINES:
        long = [place for place, part in enumerate(found) if len(part) > 1 and place not in whole]
        able = [place for place in long if place not in kept] or long
        if not able:
            break
        longest = max(able, key=lambda place: (len(found[place]), place))
        fewer = len(found[longest]) - 1
        # Long words may need more lines than their letters do: cut further until there is one line less.
        most[longest] = min(most[longest] - 8, WIDTH * fewer - 4 * (fewer + 1))
    return [line for part in found for line in part]


def _cut(entry: str, size: int) -> str:
    """At most so many characters of an entry: whole clauses, unless they are less than half of that."""
    if len(entry) <= size:
        return entry
    clauses = entry[: size - len(" ...")].rpartition("; ")[0]
    return f"{clauses}; ..." if 2 * len(clauses) >= size else textwrap.shorten(entry, size, placeholder=" ...")
