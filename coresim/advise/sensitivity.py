"""How much each input moves the predicted idle: what to measure better, or to make cheaper, first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coresim.advise.candidates import JobSetting
from coresim.advise.sweep import Study, predict
from coresim.model.scenario import with_services

CHANGE = 0.1
INPUTS = ("step", "preprocess", "fetch", "collate", "send", "consumer", "copy", "launch")


@dataclass(frozen=True)
class Elasticity:
    """Change of GPU idle (a share) when one input grows by 10 %, at one setting; central difference.

    ``elasticity`` is the relative change of idle per relative change of the input, None where nothing idles.
    """

    name: str
    change: float
    elasticity: float | None


def elasticities(setting: JobSetting, study: Study) -> tuple[Elasticity, ...]:
    """Every input that is not zero (and the core count), the strongest first.

    Every run sees the same random numbers, so a difference is the input's and not the draw's.
    """
    study = study.planned(least=2, most=2, inputs=0, settle=False)
    scenario, at = setting.scenario, predict(setting, study).gpu_idle

    def elasticity(name: str) -> Elasticity:
        # Fractional cores: as a quota would give them; the workers stay.
        up, down = (
            replace(setting, cores=setting.cores * factor)
            if name == "cores"
            else replace(setting, scenario=with_services(scenario, factor, name))
            for factor in (1.0 + CHANGE, 1.0 - CHANGE)
        )
        change = (predict(up, study).gpu_idle - predict(down, study).gpu_idle) / 2
        return Elasticity(name, change, change / CHANGE / at if at > 0 else None)

    services = vars(scenario.workload) | vars(scenario.accelerator)
    names = [name for name in INPUTS if not services[name].is_zero]
    return tuple(sorted(map(elasticity, [*names, "cores"]), key=lambda item: -abs(item.change)))
