"""How much each input moves the predicted idle: what to measure better, or to make cheaper, first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coresim.advise.sweep import Study
from coresim.advise.verdict import JudgedSetting
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


def elasticities(setting: JudgedSetting, study: Study) -> tuple[Elasticity, ...]:
    """Every input that is not zero (and the core count), the strongest first.

    Every run sees the same random numbers, so a difference is the input's and not the draw's.
    """
    study = replace(study, plan=replace(study.plan, least=2, most=2, inputs=0, settle=False), progress=None)
    scenario, at = setting.scenario, setting.idle(study)

    def elasticity(name: str) -> Elasticity:
        up, down = (_times(setting, name, 1.0 + sign * CHANGE).idle(study) for sign in (1.0, -1.0))
        change = (up - down) / 2
        return Elasticity(name, change, change / CHANGE / at if at > 0 else None)

    services = vars(scenario.workload) | vars(scenario.accelerator)
    names = [name for name in INPUTS if not services[name].is_zero]
    return tuple(sorted(map(elasticity, [*names, "cores"]), key=lambda item: -abs(item.change)))


def _times(setting: JudgedSetting, name: str, factor: float) -> JudgedSetting:
    # Fractional cores: as a quota would give them; the workers stay.
    if name == "cores":
        return replace(setting, cores=setting.cores * factor)
    return replace(setting, scenario=with_services(setting.scenario, factor, name))
