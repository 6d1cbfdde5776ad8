"""Find what holds the accelerator back: remove each possible cause in turn, and simulate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from coresim.advise.candidates import JobSetting, fits
from coresim.advise.sweep import Study, predict
from coresim.advise.transforms import Transform, keys
from coresim.model.option import Option
from coresim.model.scenario import with_services
from coresim.sim.noise import NOISE
from coresim.theory.capacity import saturation

GPU_BOUND = "GPU-bound"
#: Times of what workers do.
WORK = ("preprocess", "collate", "send")
#: Removing a cause helps little if it takes away less than this share of the excess over the target.
LITTLE = 0.1
#: What is left where the target is missed and no run sees why: a few samples that take very much longer than others.
RARE_STALLS = ("rare stalls", "shorten or drop the samples that take longest, or deliver batches out of order")


@dataclass(frozen=True)
class Verdict:
    """What binds, what would bind next, and the GPU idle if the first were removed."""

    name: str
    next_bottleneck: str
    idle_without: float
    advice: str


def _more_workers(setting: JobSetting) -> JobSetting:
    return replace(setting, workers=4 * max(1, setting.workers))


def _more_credits(setting: JobSetting) -> JobSetting:
    return replace(setting, prefetch_factor=4 * setting.prefetch_factor)


def _more_cores(setting: JobSetting) -> JobSetting:
    grown = replace(setting, cores=4 * setting.cores)
    return grown if setting.option == Option.NO_OVERLAP else _more_workers(grown)


def _job(change: Transform) -> Callable[[JobSetting], JobSetting]:
    """The change of a job, at a setting of it."""
    return lambda setting: replace(setting, scenario=change(setting.scenario))


def _faster(*names: str) -> Callable[[JobSetting], JobSetting]:
    return _job(lambda scenario: with_services(scenario, 0.0, *names))


_free_bandwidth = _job(keys("host", speed=(1.0,)))
_unslowed = _job(keys("accelerator", slowdown=(1.0,)))
_no_lock = _job(keys("loader", gil=0.0))

#: Cause, what removing it means, and what to do about it; of causes that help alike the first is named.
CAUSES: tuple[tuple[str, Callable[[JobSetting], JobSetting], str], ...] = (
    ("too few workers", _more_workers, "raise num_workers"),
    ("too few batches ahead", _more_credits, "raise prefetch_factor"),
    ("too few cores", _more_cores, "give the job more cores, or make preprocessing cheaper"),
    ("bandwidth", _free_bandwidth, "cores fight for memory: move fewer bytes per sample, not more cores"),
    ("storage", _faster("fetch"), "fetch with more concurrency, cache, or use a faster or more compact format"),
    ("interpreter lock", _no_lock, "processes instead of threads, code that releases the lock, or no GIL"),
    ("serial consumer", _faster("consumer", "pin", "pages"), "send fewer, larger tensors; smaller dtypes; pin"),
    ("copy", _faster("copy"), "pin memory and copy on a stream of its own; send uint8 and convert on the GPU"),
    ("launch-bound", _faster("launch"), "larger batches, CUDA graphs or compilation: fewer launches per second"),
    ("busy host", _unslowed, "workers slow the step itself: train on a device that shares no memory with them"),
    ("no overlap", _faster(*WORK), "prepare batches in workers while the GPU works (option 2)"),
)


def judge(setting: JobSetting, study: Study, met: bool) -> Verdict:
    """The verdict on a setting: GPU-bound where it has ``met`` the target, else the cause whose removal helps most.

    For a GPU-bound setting the next bottleneck is what would bind on an accelerator twice as fast.
    """
    target, whole, study = setting.scenario.target.gpu_idle, study.planned(inputs=0), study.rough
    idle = predict(setting, study).gpu_idle
    if idle <= target and not met:
        # A short run that sees nothing of what it is asked about says nothing about its cause.
        study, idle = whole, predict(setting, whole).gpu_idle
    if met:
        faster = replace(setting, scenario=with_services(setting.scenario, 0.5, "step"))
        name, _, _ = _worst(faster, predict(faster, study).gpu_idle, study)
        return Verdict(GPU_BOUND, name, idle, "more cores will not help: a faster step would")
    name, without, advice = _worst(setting, idle, study)
    if name == GPU_BOUND or idle - without <= LITTLE * (idle - target):
        # Two causes bind alike, so that removing either helps little: take cores out of the way, name the other.
        ample = _more_cores(setting)
        other = _worst(ample, predict(ample, study).gpu_idle, study)
        if other[0] != GPU_BOUND and other[1] < without - NOISE:
            setting, (name, without, advice) = ample, other
        elif name == GPU_BOUND:
            # So near the target that no cause is worth more than noise: the one that is worth most.
            name, without, advice = _worst(setting, idle, study, noise=0.0)
    if name == GPU_BOUND:
        name, advice = RARE_STALLS
    remaining = next((remove(setting) for cause, remove, _ in CAUSES if cause == name), setting)
    following = GPU_BOUND if without <= target + NOISE else _worst(remaining, without, study)[0]
    return Verdict(name, following, without, _possible(advice, name, setting))


def _possible(advice: str, name: str, setting: JobSetting) -> str:
    """Leave out more workers if the loader can have no more or none fits, and pinning if it gains nothing."""
    most = setting.scenario.loader.max_workers
    if name == "serial consumer" and (setting.scenario.loader.pin_memory or not setting.scenario.accelerator.copies):
        return advice.removesuffix("; pin")
    if name != "too few workers":
        return advice
    if not fits(replace(setting, workers=setting.workers + 1)):
        return f"more memory or a larger /dev/shm, or smaller batches: more than {setting.workers} workers do not fit"
    if most is None or setting.workers < most:
        return advice
    return f"a loader that can have more than {most} worker{'' if most == 1 else 's'}: this one cannot"


def _worst(setting: JobSetting, idle: float, study: Study, noise: float = NOISE) -> tuple[str, float, str]:
    """The cause whose removal lowers idle most (GPU-bound if none does by more than ``noise``).

    Bandwidth is a cause only if it is saturated. Short of that, more cores still do more work although they slow one
    another; that any bottleneck would bind less on faster cores is no cause of its own.
    """
    best = (GPU_BOUND, idle, "more cores will not help: a faster step would")
    none = {"too few workers"} if setting.option == Option.NO_OVERLAP else {"no overlap"}
    if saturation(setting.scenario.host.speed) is None:
        none.add("bandwidth")
    for name, remove, advice in CAUSES:
        if name in none:
            continue
        without = predict(remove(setting), study).gpu_idle
        if without < best[1] - noise:
            best = (name, without, advice)
    return best
