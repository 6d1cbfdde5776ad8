"""The idle that a program shows today beside the simulated idle, and the likeliest cause where they differ.

The simulation uses the costs of the loader alone and the step without waiting. Of what was observed today it uses only
the program's settings and the cores that other programs used meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from coresim.advise.candidates import JobSetting
from coresim.advise.sweep import Study, predict
from coresim.advise.verdict import WORK
from coresim.model.load import scenario_of
from coresim.model.option import STAGED_LOADER, Option
from coresim.model.profile import Profile
from coresim.model.scenario import Scenario, with_services
from coresim.model.today import Today
from coresim.units import format_duration

#: Points of idle that the prediction of today may miss by; or half its own interval, where that is wider.
TRUSTED = 0.05
#: A miss of so many points of idle is reported, however wide the interval is.
FAR_OFF = 0.12
#: The last digit that is shown of idle.
DIGIT = 0.001
#: Cores that other programs keep busy count from this share of all on: less cannot be told from counters' ticks.
NOTABLE_LOAD = 0.03
#: A term that explains less than this share of a miss is not named.
EXPLAINS = 0.5
#: Names of terms.
THE_STEP, HANDING_OVER = "the step", "handing batches over"
SHORT_EPOCHS, DIFFERENT_BATCHES = "short epochs", "batches of different sizes"
#: Terms with which nothing else can be predicted.
NOT_SIMULATED = (HANDING_OVER, SHORT_EPOCHS, DIFFERENT_BATCHES)


class Term(NamedTuple):
    """A difference between today and what was measured apart, and the idle that it would predict."""

    name: str
    words: str
    idle: float


@dataclass(frozen=True)
class Checked:
    """Today's observed idle beside the predicted one.

    Attributes:
        today: what was observed.
        predicted, low, high: the simulation's idle at the same settings, and its interval.
        term: the likeliest reason of a miss by more than `allowed`; None without one.
    """

    today: Today
    predicted: float
    low: float
    high: float
    term: Term | None = None

    @property
    def miss(self) -> float:
        """Predicted less observed idle."""
        return self.predicted - self.today.gpu_idle

    @property
    def allowed(self) -> float:
        """The largest miss within the stated uncertainty."""
        return max(TRUSTED, (self.high - self.low) / 2)

    @property
    def outside(self) -> bool:
        """Whether the observed idle lies outside of the predicted interval, as far as its digits tell."""
        return not self.low - DIGIT <= self.today.gpu_idle <= self.high + DIGIT

    @property
    def trusted(self) -> bool:
        """Whether the prediction holds."""
        return abs(self.miss) <= self.allowed


def own_options(profile: Profile | None) -> tuple[Option, ...] | None:
    """The options of an attached program (a loader with workers), or of what ran as stages; None: any.

    Another organisation is another program, and was not measured.
    """
    if profile is None:
        return None
    if profile.loader == STAGED_LOADER:
        return (Option.STAGED,)
    return None if profile.today is None else (Option.OVERLAPPED,)


def check_today(profile: Profile | None, study: Study) -> Checked | None:
    """Predict the program's own setting from its profile; None without one, and for a profile of no program."""
    if profile is None or profile.today is None:
        return None
    return check(scenario_of(profile, "profile"), profile.today, study)


def check(scenario: Scenario, today: Today, study: Study) -> Checked:
    """Predict the program's own setting."""
    cores = free_cores(scenario, today)
    found = predict(_setting(scenario, today, cores), study)
    checked = Checked(today, found.gpu_idle, found.gpu_idle_low, found.gpu_idle_high)
    return checked if checked.trusted else replace(checked, term=_likeliest(scenario, checked, cores, study))


def free_cores(scenario: Scenario, today: Today) -> float:
    """Cores of one rank that other programs left it, when it was observed."""
    cores = scenario.host.cores or float(today.threads)
    others = today.other_cores if today.other_cores > NOTABLE_LOAD * cores else 0.0
    return max(cores - others, 0.1 * cores) / today.ranks


def _setting(scenario: Scenario, today: Today, cores: float) -> JobSetting:
    option, workers = (Option.OVERLAPPED, today.workers) if today.workers else (Option.NO_OVERLAP, 0)
    return JobSetting(scenario, option, cores, workers, scenario.loader.prefetch_factor)


def _likeliest(scenario: Scenario, checked: Checked, cores: float, study: Study) -> Term:
    today, observed = checked.today, checked.today.gpu_idle
    if today.epochs_are_short and today.epoch_batches:
        ahead = min(today.ahead, today.epoch_batches)
        return Term(
            SHORT_EPOCHS,
            f"of the {today.epoch_batches} batches of an epoch {ahead} are prepared while its first is waited for,"
            " so that the loop shows no steady throughput",
            checked.predicted,
        )
    nearest = min(_terms(scenario, today, cores, study), key=lambda term: abs(term.idle - observed))
    if abs(nearest.idle - observed) <= (1.0 - EXPLAINS) * abs(checked.miss):
        return nearest
    if today.batches_differ:
        return Term(
            DIFFERENT_BATCHES,
            f"they have {today.batch_words}, and large ones are waited for; all are predicted as of {today.batch_size}",
            checked.predicted,
        )
    return Term(
        HANDING_OVER,
        "the step and the workers cost what they cost apart; what is left is handing batches over, or waiting for"
        " storage or other programs",
        checked.predicted,
    )


def _terms(scenario: Scenario, today: Today, cores: float, study: Study) -> Iterator[Term]:
    workload, step = scenario.workload, scenario.accelerator.step.mean
    changed = with_services(scenario, today.step / step, "step")
    yield Term(
        THE_STEP,
        f"it took {format_duration(today.step)} as it is and {format_duration(step)} without waiting",
        predict(_setting(changed, today, cores), study).gpu_idle,
    )
    work = workload.batch_size * workload.preprocess.mean + workload.collate.mean + workload.send.mean
    if today.workers and today.worker_cpu and work:
        changed = with_services(scenario, today.worker_cpu / work, *WORK)
        yield Term(
            "preparing a batch",
            f"it cost the workers {format_duration(today.worker_cpu)} of CPU time as it is and {format_duration(work)}"
            " when the loader ran alone",
            predict(_setting(changed, today, cores), study).gpu_idle,
        )
