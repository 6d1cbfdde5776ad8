"""How much each input moves the predicted idle: what to measure better, or to make cheaper, first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coresim.advise.sweep import Study
from coresim.advise.verdict import JudgedSetting
from coresim.model.scenario import Scenario, with_services
from coresim.model.service import Service

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
    found = [_elasticity(name, setting, study) for name in INPUTS if not _service(setting.scenario, name).is_zero]
    return tuple(sorted([*found, _of_cores(setting, study)], key=lambda item: -abs(item.change)))


def _service(scenario: Scenario, name: str) -> Service:
    service: Service = getattr(scenario.accelerator if name in ("step", "launch") else scenario.workload, name)
    return service


def _elasticity(name: str, setting: JudgedSetting, study: Study) -> Elasticity:
    up, down = (
        replace(setting, scenario=with_services(setting.scenario, 1.0 + sign * CHANGE, name)).idle(study)
        for sign in (1.0, -1.0)
    )
    return _difference(name, up, down, setting.idle(study))


def _of_cores(setting: JudgedSetting, study: Study) -> Elasticity:
    """Fractional cores: as a quota would give them; the workers stay."""
    up, down = (replace(setting, cores=setting.cores * (1.0 + sign * CHANGE)).idle(study) for sign in (1.0, -1.0))
    return _difference("cores", up, down, setting.idle(study))


def _difference(name: str, up: float, down: float, at: float) -> Elasticity:
    change = (up - down) / 2
    return Elasticity(name, change, change / CHANGE / at if at > 0 else None)
