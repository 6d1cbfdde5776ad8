"""A recommendation with where it comes from: what every form of an answer is made of."""

from __future__ import annotations

from dataclasses import dataclass

from coresim.advise.recommend import Recommendation
from coresim.attaching.today import Checked
from coresim.model.loader_settings import LoaderSettings
from coresim.report.today import settings_text, today_text


@dataclass(frozen=True, repr=False)
class Answered:
    """A recommendation with where it comes from.

    Attributes:
        result: the recommendation itself.
        step_provenance: where the step time comes from.
        notes: cautions from measuring.
        provenance: where all else comes from, and what is assumed.
        subject: data set, GPU and host, as far as they are known.
        today: how the program does today, where the profile is of one.
        settings: of the DataLoader that was named, where one was.
    """

    result: Recommendation
    step_provenance: str | None = None
    notes: tuple[str, ...] = ()
    provenance: tuple[str, ...] = ()
    subject: tuple[tuple[str, str], ...] = ()
    today: Checked | None = None
    settings: LoaderSettings | None = None

    @property
    def today_text(self) -> str | None:
        """How the job does today, as far as that is known: what an answer begins with."""
        if self.today is not None:
            return today_text(self.today)
        if self.settings is None:
            return None
        # The prediction is of the scenario, which flags may have changed.
        same = self.settings.describes(self.result.scenario.loader)
        return settings_text(self.settings, self.result.own_host if same else None)
