"""Single runs of one pipeline: of the inputs as they are, and of inputs that are moved by their uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from coresim.model.pipeline import Pipeline
from coresim.sim.accounts import idle_of
from coresim.sim.draws import Draws, draw, perturb_speed, under_way
from coresim.sim.noise import Observation, observe
from coresim.sim.run import Run, RunLength
from coresim.sim.variation import is_random

if TYPE_CHECKING:
    from coresim.sim.estimate import Engine


@dataclass(frozen=True)
class Replications:
    """The independent runs of a pipeline, each kept: estimates that differ in when they stop share their runs.

    Attributes:
        pipeline: what is simulated.
        engine: what simulates it.
        seed: of the whole study.
        under_way: whether the line was at work before the run (`coresim.sim.draws.under_way`).
        cache: where the draws of a sweep and these runs are kept.
    """

    pipeline: Pipeline
    engine: Engine
    seed: int
    under_way: bool
    cache: dict[Any, Any]

    def run(self, length: RunLength, rows: int, number: int) -> tuple[Run, Observation]:
        """The run of this number, with draws of so many rows, and what it says of the long run."""
        what = ("run", self.pipeline, length, rows, self.seed, number, self.under_way)
        if what not in self.cache:
            draws = draw(self.pipeline, rows, self.seed, number, cache=self.cache)
            run = self._simulated(self.pipeline, draws, rows, length)
            self.cache[what] = run, observe(self.pipeline, draws, length, run)
        found: tuple[Run, Observation] = self.cache[what]
        return found

    def moved_idle(self, length: RunLength, rows: int, number: int, inputs: int) -> float:
        """GPU idle of one of ``inputs`` runs with uncertain inputs."""
        what = ("moved", self.pipeline, length, rows, self.seed, number, inputs, self.under_way)
        if what not in self.cache:
            draws = draw(self.pipeline, rows, self.seed, number, inputs, self.cache)
            changed = perturb_speed(self.pipeline, self.seed, number, inputs)
            self.cache[what] = idle_of(self._simulated(changed, draws, rows, length))
        idle: float = self.cache[what]
        return idle

    def _simulated(self, pipeline: Pipeline, draws: Draws, rows: int, length: RunLength) -> Run:
        return self.engine(pipeline, under_way(pipeline, draws, rows) if self._begun else draws, length)

    @cached_property
    def _begun(self) -> bool:
        # Where no time varies, workers keep for ever the beat in which they begin.
        return self.under_way and is_random(self.pipeline)
