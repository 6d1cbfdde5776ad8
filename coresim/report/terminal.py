"""A recommendation in a terminal: the whole answer in ten lines, then the warnings, and with ``--verbose`` the rest."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from coresim.report.content import Facts, Section, Verbatim
from coresim.report.plain import answer_lines
from coresim.report.plan import evidence
from coresim.report.provenance import merged
from coresim.report.summary import WARNING, facts, summary
from coresim.report.words import WIDTH, wrapped

if TYPE_CHECKING:
    from coresim.report.answer import Answer

#: Lines of the answer.
LINES = 10
#: The beginnings of entries that are of little use if cut.
WHOLE = ("With ", "Next: ")


def answer_text(answer: Answer, verbose: bool = False) -> str:
    """Today, the answer in ten lines, then the warnings, or with ``verbose`` all of the evidence."""
    entries = summary(answer)
    warned = sum(entry.startswith(WARNING) for entry in entries)
    block = "\n".join(_within(entries, {warned}))
    if verbose:
        full = tuple(fact for fact in facts(answer) if fact[0] != "Today")  # which the answer begins with
        more = [Section("The answer in full", (Facts(full),)), *evidence(answer)]
    else:
        shown = " ".join(block.split())
        notes = [note for note in merged(answer.notes) if " ".join(note.split()) not in shown]
        notes.append("--verbose shows the options, the curve and the evidence")
        more = [Section("", (Verbatim("\n".join(wrapped(note, "  ", "    ") for note in notes)),))]
    return answer_lines("", answer.today_section, Section("", (Verbatim(block),)), *more)


def _within(entries: Sequence[str], whole: Set[int] = frozenset()) -> list[str]:
    """The entries in lines of the text's width; the longest is cut until there are at most `LINES` lines.

    ``whole``: positions of entries that are never cut; entries that begin as one of `WHOLE` are cut last.
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
    """At most ``size`` characters of an entry: whole clauses, unless these are shorter than half of it."""
    if len(entry) <= size:
        return entry
    clauses = entry[: size - len(" ...")].rpartition("; ")[0]
    return f"{clauses}; ..." if 2 * len(clauses) >= size else textwrap.shorten(entry, size, placeholder=" ...")
