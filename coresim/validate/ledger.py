"""The ledger: every point's setting, what was predicted, what was measured under which load; a versioned file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from coresim import __version__, stats
from coresim.errors import InputError
from coresim.files import as_record, check_version, read_json, renamed, utc_now, write_json
from coresim.measure.parts import version_of
from coresim.model.host import HostFacts
from coresim.sim.run import RunLength
from coresim.validate.grid import Grid, Setting
from coresim.validate.predict import Costs, Prediction

FORMAT = "coresim-ledger"
VERSION = 7
#: What keys of version 6 are called today.
_SINCE_6 = {"cautions": "warnings", "pace": "slowdown"}


@dataclass(frozen=True)
class MeasuredTrial:
    """One trial.

    Attributes:
        idle: GPU idle, a share of the window (`coresim.validate.predict.idle_share`).
        step_starts_us: when each step began on the device's clock, microseconds after the last warm-up step.
        step_ends_us: when it ended, in real training; an emulated step lasts what the point says.
        wall_gots_us: when the trainer had each step's batch in its hands by the wall clock, which nothing corrects.
        lateness_s: mean lateness of the timer, which is taken out.
        sample_s, collate_s, receive_s: mean CPU time of a sample, of collating and of receiving a batch; they tell a
            disturbed trial and explain a miss, and feed no prediction.
        others_cores: cores that other programs kept busy meanwhile.
        slowdown: what the sampler's work cost during the trial, relative to the calibration's.
        dirty: why the trial does not count, or "".
        pin_s: mean CPU time of the thread that pins a batch; None if no thread pins, or if it was not noted.
        uncovered: in real training, the share of the window in which the device was in no step by its events: less than
            ``idle`` where steps are longer than alone, because they wait for launches.
        launch_s: in real training, mean wall time to copy a batch and to launch its step; None: it was not noted.
    """

    idle: float
    seconds_per_step: float
    step_starts_us: tuple[int, ...]
    step_ends_us: tuple[int, ...]
    wall_gots_us: tuple[int, ...]
    lateness_s: float
    sample_s: float
    collate_s: float
    receive_s: float
    others_cores: float
    slowdown: float = 1.0
    dirty: str = ""
    pin_s: float | None = None
    uncovered: float | None = None
    launch_s: float | None = None


@dataclass(frozen=True)
class RecordedPoint:
    """One setting with its predictions, made before the trials, and its trials; ``job`` counts the ledger's jobs.

    ``rate_idle`` and ``buffer_idle`` are the field's two models'.
    """

    job: int
    setting: Setting
    step_s: float
    steps: int
    warm_up: int
    prediction: Prediction
    rate_idle: float
    buffer_idle: float
    trials: tuple[MeasuredTrial, ...] = ()

    @property
    def length(self) -> RunLength:
        """Steps of each trial."""
        return RunLength(self.warm_up + self.steps, self.warm_up)

    @property
    def clean(self) -> tuple[MeasuredTrial, ...]:
        """The trials that count."""
        return tuple(trial for trial in self.trials if not trial.dirty)

    @property
    def idle(self) -> float:
        """Measured idle: the median of the clean trials."""
        return stats.median([trial.idle for trial in self.clean])

    @property
    def error(self) -> float:
        """Predicted less measured idle, a share."""
        return self.prediction.idle - self.idle

    @property
    def spread(self) -> float | None:
        """Largest difference between repeats of this point (the noise floor), or None for one trial."""
        idles = [trial.idle for trial in self.clean]
        return max(idles) - min(idles) if len(idles) > 1 else None

    @property
    def seconds_per_step(self) -> float:
        """Measured time from step to step, s."""
        return stats.median([trial.seconds_per_step for trial in self.clean])

    @property
    def throughput_error(self) -> float:
        """Relative error of predicted throughput."""
        return self.seconds_per_step / self.prediction.seconds_per_step - 1.0

    @property
    def covered(self) -> bool:
        """Whether the stated interval holds the measured idle."""
        return self._holds(self.idle)

    @property
    def held(self) -> float:
        """Share of the clean trials whose idle the stated interval holds; it is stated for one trial."""
        return stats.mean([float(self._holds(trial.idle)) for trial in self.clean])

    def _holds(self, idle: float) -> bool:
        return self.prediction.low <= idle <= self.prediction.high


@dataclass(frozen=True)
class RecordedJob:
    """One calibration: of an organisation, for a workload and batch size.

    ``title`` is what a profile of the workload calls it; ``device``: what trains, or "" where it is emulated.
    ``seconds``: wall time of the calibration, of all predictions from it, and of building the data set if it was built
    for it. ``warnings``: what it warned of.
    """

    workload: str
    title: str
    costs: Costs
    device: str = ""
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ledger:
    """All points of a validation, with where they come from."""

    tool_version: str
    command: str
    time_utc: str
    host_fingerprint: str
    cpu_model: str
    cpus: int
    accelerator: str
    grid: str
    grid_sha256: str
    grid_trials: int
    jobs: tuple[RecordedJob, ...] = ()
    points: tuple[RecordedPoint, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def scored(self) -> tuple[RecordedPoint, ...]:
        """Points with at least one clean trial."""
        return tuple(point for point in self.points if point.clean)

    def of(self, title: str) -> Ledger:
        """The ledger with the points of that workload alone."""
        return replace(self, points=tuple(point for point in self.points if self.job_of(point).title == title))

    def without(self, settings: Collection[Setting]) -> Ledger:
        """The ledger without the points of those settings, where a batch size of 0 stands for any."""
        left = [p for p in self.points if not {p.setting, replace(p.setting, batch_size=0)}.intersection(settings)]
        return replace(self, points=tuple(left))

    def job_of(self, point: RecordedPoint) -> RecordedJob:
        """The calibration that a point's prediction rests on."""
        return self.jobs[point.job]

    def with_job(self, job: RecordedJob, points: Sequence[RecordedPoint]) -> Ledger:
        """The ledger with one more job and those of its points that have trials."""
        return replace(self, jobs=(*self.jobs, job), points=(*self.points, *(p for p in points if p.trials)))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"format": FORMAT, "schema_version": VERSION} | asdict(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file; whole or not at all."""
        write_json(path, self.to_dict())


def empty_ledger(host: HostFacts, grid: Grid, command: str, device: str = "cuda") -> Ledger:
    """A ledger of this host, now, without points; ``device``: where the grid's models train."""
    emulated = "emulated (blocks for the step time)"
    # What tells two states of the same version apart.
    modules = sorted(Path(__file__).parents[1].rglob("*.py"))
    code = hashlib.sha256(b"".join(path.read_bytes() for path in modules)).hexdigest()
    trained = (f"training {s.trains} on {s.device or device}" if s.trains else emulated for s in grid.settings)
    return Ledger(
        tool_version=__version__,
        command=command,
        time_utc=utc_now(),
        host_fingerprint=host.fingerprint,
        cpu_model=host.cpu_model or "unknown",
        cpus=round(host.usable_cores),
        accelerator=", ".join(dict.fromkeys(trained)),
        grid=grid.name,
        grid_sha256=grid.sha256,
        grid_trials=sum(setting.repeats for setting in grid.settings),
        versions={name: version for name in ("torch", "numpy") if (version := version_of(name))} | {"code": code[:12]},
    )


def load_ledger(path: str | os.PathLike[str]) -> Ledger:
    """A ledger from its file.

    Raises:
        InputError: no ledger, one of an earlier or a newer format, or something missing in it.
    """
    document = read_json(path)
    check_version(path, document, FORMAT, VERSION)
    if document["schema_version"] < 6:  # its figures may mean something else
        raise InputError(
            f"{path}: recorded by an earlier coresim (format {document['schema_version']}); validate again, into"
            " another file"
        )
    known = document if document["schema_version"] == VERSION else renamed(document, _SINCE_6)
    body = {name: value for name, value in known.items() if name not in ("format", "schema_version")}
    try:
        found: Ledger = as_record(Ledger, {"points": None} | body)
    except InputError as error:
        raise InputError(f"{path}: {error}; validate again, into another file") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a whole ledger ({error}); validate again, into another file") from None
    return found
