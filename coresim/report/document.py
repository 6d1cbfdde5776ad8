"""JSON documents of results; `coresim.report.schemas` describes them. Keys carry their unit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from coresim.advise.decide import OptionAnswer
from coresim.advise.recommend import Recommendation
from coresim.advise.sweep import Point
from coresim.model.crowding import CURE
from coresim.model.scenario import Scenario
from coresim.model.storage import data_bytes, misses_of
from coresim.report.node import node_of
from coresim.report.schemas import SCHEMA_VERSION
from coresim.report.settings import loader_settings, pins_memory
from coresim.sim.estimate import Estimate


def recommendation_document(answer: Recommendation, metadata: dict[str, Any]) -> dict[str, Any]:
    """The document that ``coresim recommend --json`` prints."""
    bound = answer.lower_bound
    return {
        "schema_version": SCHEMA_VERSION,
        "step_time_known": True,
        "recommendation": recommended(answer),
        "sure": sure(answer),
        "cores_per_1000_samples_per_s": asdict(answer.per_rate),
        "uncertain_inputs": [asdict(one) for one in answer.uncertain],
        "options": [_option(answer.scenario, option) for option in answer.options],
        "lower_bound_cores": bound.whole,
        "lower_bound": {"cores": finite(bound.cores), "formula": bound.formula, "numbers": bound.numbers,
                        "binding": bound.binding},
        "saturating_cores": answer.saturating_cores,
        "rule_of_thumb_cores": answer.rule_of_thumb_cores,
        "own_host": _own_host(answer),
        "elasticities": [
            {"input": item.name, "gpu_idle_change_per_10_percent": item.change, "elasticity": item.elasticity}
            for item in answer.elasticities
        ],
        "epoch_start": None if answer.epoch_start is None else asdict(answer.epoch_start),
        "storage": _storage(answer.scenario),
        "unlimited_threads": _unlimited(answer),
        "target_gpu_idle": answer.scenario.target.gpu_idle,
        "metadata": metadata,
    }  # fmt: skip


def _storage(scenario: Scenario) -> dict[str, Any]:
    misses = misses_of(scenario)
    return {
        "tier": scenario.host.storage,
        "fetch_mean_s": scenario.workload.fetch.mean,
        "dataset_bytes": data_bytes(scenario),
        "page_cache_miss_share": None if misses is None else misses.share,
    }


def _unlimited(answer: Recommendation) -> dict[str, Any] | None:
    found = answer.unlimited
    if found is None:
        return None
    return {
        "threads_per_worker": found.each,
        "threads": found.crowding.threads,
        "cores": found.crowding.cores,
        "cpu_work_factor": found.crowding.factor,
        "cure": CURE,
        **_of(found.estimate, *_IDLE),
    }


def finite(value: float) -> float | None:
    """The number, or None where JSON has no word for it."""
    return value if abs(value) < float("inf") else None


def recommended(answer: Recommendation) -> dict[str, Any]:
    """The recommended setting and what is said of it."""
    point, loader = answer.point, answer.scenario.loader
    return {
        "option": point.option,
        "option_name": point.option.label,
        "cores_per_gpu": point.cores,
        "hardware_threads_per_gpu": answer.hardware_threads,
        **setting_record(answer.scenario, point),
        "node": node_of(answer.scenario, point)._asdict(),
        "pin_memory": pins_memory(answer.scenario),
        "persistent_workers": loader.persistent_workers,
        "preset": loader.preset,
        "settings": loader_settings(answer.scenario, point.workers, point.prefetch_factor),
        "verdict": answer.verdict.name,
        "next_bottleneck": answer.verdict.next_bottleneck,
        "advice": answer.verdict.advice,
        "probability_within_target": answer.probability,
        **_of(answer, "meets_target", "cores_low", "cores_high"),
        **_of(point.estimate, *_HALVES),
    }


def sure(answer: Recommendation) -> dict[str, Any]:
    """Of all options the setting with the fewest cores that surely meet the target; nulls where none tried does."""
    point = answer.sure
    probability = None if point is None else point.estimate.probability(answer.scenario.target.gpu_idle)
    return {
        "confidence": answer.confidence,
        "option": point and point.option,
        "option_name": point and point.option.label,
        "cores_per_gpu": point and point.cores,
        "workers": point and point.workers,
        "prefetch_factor": point and point.prefetch_factor,
        "memory_bytes": point and _memory(answer.scenario, point),
        "probability_within_target": probability,
    }


def _memory(scenario: Scenario, point: Point) -> float | None:
    """Bytes of host memory of all of the host's loaders; None where that is not known."""
    return node_of(scenario, point).memory_bytes


#: Attributes of an estimate that are keys of documents too.
_IDLE = ("gpu_idle", "gpu_idle_low", "gpu_idle_high")
_HALVES = ("simulation_half_low", "simulation_half_high", "input_half_low", "input_half_high")


def _of(found: object, *names: str) -> dict[str, Any]:
    return {name: getattr(found, name) for name in names}


def setting_record(scenario: Scenario, point: Point) -> dict[str, Any]:
    """What a setting is, takes and gives."""
    return {
        **_of(point, "workers", "prefetch_factor"),
        "memory_bytes": _memory(scenario, point),
        **_of(point.estimate, *_IDLE, "throughput_samples_per_s"),
    }


def _option(scenario: Scenario, answer: OptionAnswer) -> dict[str, Any]:
    return {
        "option": answer.option,
        "option_name": answer.option.label,
        "cores_per_gpu": answer.answer.cores if answer.answer else None,
        "cores_per_gpu_sure": answer.sure.cores if answer.sure else None,
        "workers": answer.answer.workers if answer.answer else None,
        "prefetch_factor": answer.answer.prefetch_factor if answer.answer else None,
        "workers_capped": _capped(answer),
        "curve": [_point(scenario, point) for point in answer.curve],
    }


def _capped(answer: OptionAnswer) -> dict[str, Any] | None:
    cap = answer.capped
    short = cap and cap.memory.short_of
    if not cap or not short:
        return None
    what, size, needed = short
    return {
        "workers": cap.workers, "by": what, "size_bytes": size, "workers_wanted": cap.wanted, "needed_bytes": needed
    }  # fmt: skip


def _point(scenario: Scenario, point: Point) -> dict[str, Any]:
    return {"cores": point.cores, **setting_record(scenario, point)}


def _own_host(answer: Recommendation) -> dict[str, Any] | None:
    own = answer.own_host
    if own is None:
        return None
    verdict = {"verdict": own.verdict.name, "next_bottleneck": own.verdict.next_bottleneck}
    today = own.today and {**_point(answer.scenario, own.today), "cores": own.cores, "option": own.today.option}
    best = {**_point(answer.scenario, own.point), "cores": own.cores, "option": own.point.option}
    return {**best, **verdict, "today": today, "throughput_gain": own.gain}


def estimate_document(estimate: Estimate, setting: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """The document that ``coresim simulate --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "setting": setting,
        **_of(estimate, *_IDLE, "accelerator_utilisation", "data_stall_s", "throughput_samples_per_s", "makespan_s"),
        "data_stall_fraction": estimate.accelerator["starved"],
        "busy_cores": estimate.busy_cores,
        "accelerator": dict(estimate.accelerator),
        "starved_by": dict(estimate.starved_by),
        "trainer": dict(estimate.trainer),
        "stations": [dict(station) for station in estimate.stations],
        "interval": _of(estimate, "level", *_HALVES),
        "steps": estimate.steps,
        "warm_up_steps": estimate.warm_up,
        "replications": estimate.replications,
        "metadata": metadata,
    }
