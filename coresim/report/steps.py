"""The answer for a step time that is not known: as text and as a JSON document."""

from __future__ import annotations

from dataclasses import dataclass

from coresim.advise.recommend import Recommendation
from coresim.advise.steps import StepUnknown
from coresim.model.loader_settings import LoaderSettings
from coresim.report.content import Items, Paragraph, Section
from coresim.report.document import PER_RATE, RECOMMENDED, SURE
from coresim.report.doubt import rate_words, sure_words
from coresim.report.plain import answer_lines
from coresim.report.records import VERSION, Key, Record, constant
from coresim.report.shown import Shown
from coresim.report.text import setting_words
from coresim.report.today import settings_section
from coresim.report.words import percent, plural
from coresim.units import format_duration

REMEDY = (
    "What makes it one number: --step MODULE:NAME times yours, --step-time '98 ms' gives it, --gpu NAME takes a"
    " recorded one; of a saved profile --set 'accelerator.step=98 ms'"
)


@dataclass(frozen=True, repr=False)
class ForSteps(Shown):
    """An answer for a few step times with its provenance; the fields are those of `coresim.report.answer.Answer`."""

    result: StepUnknown
    notes: tuple[str, ...] = ()
    provenance: tuple[str, ...] = ()
    settings: LoaderSettings | None = None

    def __str__(self) -> str:
        today = [settings_section(self.settings, None)] if self.settings else []
        rate = f"Step time unknown: {rate_words(self.result.per_rate)}, more where many cores slow one another."
        lines = Section("", (Items(tuple(map(_line, self.result.answers))),))
        more = (Section("Provenance", (Items(self.provenance),)), Section("Warnings", (Items(self.notes),)))
        return answer_lines(rate, lines, *today, Section("", (Paragraph(REMEDY),)), *more)


def _line(found: Recommendation) -> str:
    step = found.scenario.accelerator.step.mean
    rate = found.scenario.workload.batch_size / step
    head = f"with steps of {format_duration(step)} ({rate:,.0f} samples/s): "
    if not found.meets_target:
        return f"{head}no core count tried; {found.verdict.name} (GPU idle {percent(found.point.estimate.gpu_idle)})"
    return f"{head}{plural(found.point.cores, 'core')} per GPU, {setting_words(found.point)}; {sure_words(found)}"


_STEP = Record(
    Key("step_s", "number", "scenario.accelerator.step.mean"),
    Key("recommendation", RECOMMENDED, lambda found: found),
    Key("sure", SURE, lambda found: found),
)
#: Of a `StepUnknown`; ``metadata`` is given beside it.
STEPS = Record(
    VERSION,
    constant("step_time_known", False),
    Key("cores_per_1000_samples_per_s", PER_RATE, "per_rate"),
    Key("steps", _STEP, "answers", each=True),
    Key("target_gpu_idle", "share", lambda answer: answer.answers[0].scenario.target.gpu_idle),
    Key("metadata", "table"),
)
