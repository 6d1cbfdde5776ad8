"""Remedies side by side, as text, as a table of a report, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from coresim.advise.remedies import PROVENANCES
from coresim.advise.what_if import RemedyOutcome, WhatIf
from coresim.report.content import Items, Paragraph, Section, Table, Verbatim
from coresim.report.plain import answer_lines
from coresim.report.words import option_words, percent, plural, ranged
from coresim.units import format_bytes

COLUMNS = ("remedy", "GPU idle", "samples/s", "workers", "cores needed", "memory", "provenance")


def what_if_text(found: WhatIf, *before: Section) -> str:
    """The sections ``before``, then the conclusion, the table, and what each line means and costs."""
    return answer_lines("", *before, Section("", (Verbatim(conclusion(found)), _table(found))), _notes(found))


def remedies_sections(found: WhatIf) -> tuple[Section, Section]:
    """The sections of a report: today beside each remedy, and what each is, rests on and costs."""
    table = _table(found, f"On {plural(found.today.cores, 'core')} per GPU, option {found.option}")
    return Section("What would help, side by side", (Paragraph(conclusion(found)), table)), _notes(found)


def _table(found: WhatIf, title: str = "") -> Table:
    return Table(COLUMNS, tuple(map(_row, (found.today, *found.outcomes))), title)


def _notes(found: WhatIf) -> Section:
    notes = [
        f"{remedy.name}: {remedy.what}. {(told := remedy.assumptions)[:1].upper()}{told[1:]}. It costs {outcome.price}."
        for outcome in found.outcomes
        if (remedy := outcome.remedy)
    ]
    if found.left_out:
        share = percent(found.scenario.workload.decode_share or 0.0)
        names = ", ".join(found.left_out)
        what = f"does not fit, {share} of the preparation is known to decode: {names}"
        notes.append(f"{what}. If more does, say so: --set workload.decode_share=0.5.")
    return Section("What the remedies are", (Items(tuple(notes)),))


def conclusion(found: WhatIf) -> str:
    """The first line: whether to buy cores, of which option, what helps most, and which option is recommended."""
    target, today, best = found.scenario.target.gpu_idle, found.today, found.best
    option = "" if found.scenario.stages else f", {option_words(found.option)},"
    where = f"n {plural(today.cores, 'core')} per GPU{option} the GPU idles {percent(today.idle)}"
    helps = other = ""
    if best is not None and best.remedy is not None:
        gain = f"{best.throughput:.0f} samples/s, {percent(best.idle)} idle, {_provenance(best)}"
        helps = f" Best on these cores: {best.remedy.name} ({gain})."
    if option and found.chosen != found.option:
        other = f" Recommended is {option_words(found.chosen)}: --option {found.chosen} looks at that."
    if today.idle <= target:
        return f"Do not buy cores: o{where}, within the target of {percent(target)}.{other}"
    if not found.need_cores:
        return f"Do not buy cores: o{where}, and no number of them meets {percent(target)}.{helps}{other}"
    return f"O{where}; {_cores(today)} cores would keep it within {percent(target)}.{helps}{other}"


def what_if_document(found: WhatIf) -> dict[str, Any]:
    """JSON-ready; shares, samples/s, bytes."""
    return {"conclusion": conclusion(found), "option": found.option, "recommended_option": found.chosen,
            "need_cores": found.need_cores,
            "today": _document(found.today), "remedies": [_document(o) for o in found.outcomes]}  # fmt: skip


def _document(outcome: RemedyOutcome) -> dict[str, Any]:
    remedy = outcome.remedy
    about = {name: getattr(remedy, name) for name in ("name", "what", "provenance", "assumptions")} if remedy else {}
    about |= {"price": outcome.price} if remedy else {}
    memory = None if outcome.memory is None else asdict(outcome.memory)
    return {
        **about, "gpu_idle": outcome.idle, "gpu_idle_low": outcome.idle_low, "gpu_idle_high": outcome.idle_high,
        "throughput_samples_per_s": outcome.throughput, "workers": outcome.workers, "cores_per_gpu": outcome.cores,
        "minimum_cores_low": outcome.minimum_cores[0], "minimum_cores_high": outcome.minimum_cores[1],
        "memory_bytes": memory, "possible": outcome.possible,
    }  # fmt: skip


def _row(outcome: RemedyOutcome) -> tuple[str, ...]:
    name = outcome.remedy.name if outcome.remedy else "today"
    idle = ranged(outcome.idle, outcome.idle_low, outcome.idle_high)
    memory = "" if outcome.memory is None else format_bytes(outcome.memory.total)
    memory = memory if outcome.possible else f"{memory} does not fit".strip()
    return name, idle, f"{outcome.throughput:.0f}", str(outcome.workers), _cores(outcome), memory, _provenance(outcome)


def _provenance(outcome: RemedyOutcome) -> str:
    """The provenance of an outcome; a scenario that was written by hand measured nothing."""
    remedy = outcome.remedy
    return "this job's numbers" if remedy is None or remedy.provenance == PROVENANCES[0] else remedy.provenance


def _cores(outcome: RemedyOutcome) -> str:
    low, high = outcome.minimum_cores
    if low is None:
        return "none do"
    return f"{low}" if low == high else f"{low} to {'none' if high is None else high}"
