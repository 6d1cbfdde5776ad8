"""Results that print well, convert to pandas and plot: what the Python functions return."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coresim import report
from coresim.advise.recommend import Recommendation
from coresim.attaching.today import Checked
from coresim.model.loader_settings import LoaderSettings
from coresim.model.profile import Profile
from coresim.report.content import Section
from coresim.report.plain import section_text
from coresim.report.provenance import input_lines, profile_notes, step_provenance, subject_of
from coresim.report.shown import Shown
from coresim.report.simulated import estimate_section
from coresim.report.terminal import answer_text
from coresim.report.today import settings_section, today_section
from coresim.sim.estimate import Engine, Estimate

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Answer(Shown):
    """A recommendation that prints itself, with its provenance.

    Attributes:
        result: the recommendation itself.
        step_provenance: where the step time comes from.
        notes: warnings from measuring.
        provenance: where all other inputs come from, and the assumptions.
        subject: data set, loader, GPU and host, as far as they are known.
        today: how the program runs today, if the profile is of a program.
        settings: of the DataLoader that was named, if one was.
    """

    result: Recommendation
    step_provenance: str | None = None
    notes: tuple[str, ...] = ()
    provenance: tuple[str, ...] = ()
    subject: tuple[tuple[str, str], ...] = ()
    today: Checked | None = None
    settings: LoaderSettings | None = None

    @property
    def today_section(self) -> Section:
        """How the job runs today, as far as that is known; answers begin with it."""
        if self.today is not None:
            return today_section(self.today)
        if self.settings is None:
            return Section("", ())
        # The prediction is of the scenario, which flags may have changed.
        same = self.settings.describes(self.result.scenario.loader)
        return settings_section(self.settings, self.result.own_host if same else None)

    @property
    def cores_per_gpu(self) -> int:
        """Recommended physical cores per accelerator."""
        return self.result.point.cores

    @property
    def cores_per_gpu_sure(self) -> int | None:
        """Physical cores per accelerator that meet the target with the given confidence; None if no setting does."""
        return None if self.result.sure is None else self.result.sure.cores

    @property
    def workers(self) -> int:
        """Recommended loader workers per accelerator."""
        return self.result.point.workers

    @property
    def gpu_idle(self) -> float:
        """Predicted GPU idle at the recommended setting, a share."""
        return self.result.point.estimate.gpu_idle

    def __str__(self) -> str:
        return self.text(verbose=True)

    def text(self, verbose: bool = False) -> str:
        """Today, and the answer in ten lines with its warnings, or ``verbose`` with all of the evidence."""
        return answer_text(self, verbose)

    def _repr_html_(self) -> str:
        from coresim.report.html import render  # noqa: PLC0415 - jinja2 is imported only when asked for
        from coresim.report.summary import facts, short_headline  # noqa: PLC0415

        return render("answer.html.j2", headline=short_headline(self.result), facts=facts(self), text=str(self))

    def to_frame(self) -> pd.DataFrame:
        """The curves as a table."""
        return report.tables.curve_frame(self.result)

    def plot(self, axes: Axes | None = None) -> Axes:
        """GPU idle over cores, all options."""
        return report.figures.plot_curves(self.result, axes)

    def plot_timeline(self, engine: Engine | None = None) -> Figure:
        """The first batches of each option at its own answer (or knee); ``engine``: the fast one, or another."""
        from coresim.sim.fast import simulate  # noqa: PLC0415

        return report.figures.plot_answer_timeline(self.result, engine or simulate)


def answer_of(
    result: Recommendation,
    profile: Profile | None,
    source: str | None = None,
    settings: Sequence[str] = (),
    today: Checked | None = None,
) -> Answer:
    """The answer with the words of its profile; without a profile it rests on the file ``source``.

    ``settings``: the overrides that were applied. ``today``: the observation of the profile's program.
    """
    step = step_provenance(profile, source, settings)
    notes, lines = profile_notes(profile, settings) if profile else ((), ())
    lines = (*lines, *input_lines(result, profile, source, settings))
    own = profile.settings if profile else None
    return Answer(result, step, notes, lines, subject_of(result.scenario, profile), today, own)


@dataclass(frozen=True, repr=False)
class Simulated(Shown):
    """The estimate of one simulated setting; it prints itself."""

    result: Estimate
    setting: dict[str, Any]

    @property
    def gpu_idle(self) -> float:
        """Predicted GPU idle, a share."""
        return self.result.gpu_idle

    def __str__(self) -> str:
        return section_text(estimate_section(self.result, self.setting))

    def to_frame(self) -> pd.DataFrame:
        """Where the time went, as a table."""
        return report.tables.estimate_frame(self.result)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Where the accelerator's time went, as bars."""
        return report.figures.plot_shares(self.result, axes)


class Measured(Shown, Profile):
    """A profile that prints itself in a notebook, as the other results do."""

    @classmethod
    def of(cls, profile: Profile) -> Measured:
        """The same profile."""
        return cls(**vars(profile))

    def __str__(self) -> str:
        return f"{self.workload}, batch {self.batch_size}; step: {self.accelerator.provenance}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(str(self))}</p>{self.to_frame().to_html(index=False, float_format='%.4g')}"

    def to_frame(self) -> pd.DataFrame:
        """The measurements, one row each, with intervals."""
        return report.tables.profile_frame(self)

    def plot(self, axes: Axes | None = None) -> Axes:
        """What each step of preparing a sample takes."""
        return report.figures.plot_preparation(self, axes)
