"""JSON documents of an answer and of one simulated setting, with their schemas. Keys carry their unit."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from coresim.advise.sweep import Point
from coresim.model.crowding import CURE
from coresim.model.scenario import Scenario
from coresim.model.storage import data_bytes, misses_of
from coresim.report.records import KINDS, VERSION, Key, Record, constant, keys
from coresim.report.settings import loader_settings, node_of, pins_memory
from coresim.report.today import TODAY


class Placed(NamedTuple):
    """The part of a recommendation for one option, with its scenario and, if there is one, its setting."""

    scenario: Scenario
    part: Any
    point: Point


#: Attributes of an estimate that are keys of documents too.
_IDLE = ("gpu_idle", "gpu_idle_low", "gpu_idle_high")
_HALVES = ("simulation_half_low", "simulation_half_high", "input_half_low", "input_half_high", "model_half")
#: What a setting is, takes and gives, of anything with a scenario and a point; memory: of all of the host's loaders.
_SETTING = (
    *keys("whole", "workers", "prefetch_factor", of="point"),
    Key("memory_bytes", "amount?", lambda at: node_of(at.scenario, at.point).memory_bytes),
    *keys("share", *_IDLE, of="point.estimate"),
    Key("throughput_samples_per_s", "number", "point.estimate.throughput_samples_per_s"),
)
_POINT = Record(Key("cores", "whole", "point.cores"), *_SETTING)
#: A row of the table of the curves.
CURVE_ROW = Record(
    Key("option", "option", "point.option"),
    Key("cores_per_gpu", "whole", "point.cores"),
    *_SETTING,
    Key("busy_cores", "number", "point.estimate.busy_cores"),
)
#: All accelerators of one host together.
_NODE = Record(*keys("whole", "gpus", "cores", "workers"), Key("memory_bytes", "amount?"))
#: The recommended setting and what is said of it.
RECOMMENDED = Record(
    Key("option", "option", "point.option"),
    Key("option_name", "text", "point.option.label"),
    Key("cores_per_gpu", "whole", "point.cores"),
    Key("hardware_threads_per_gpu", "whole", "hardware_threads"),
    *_SETTING,
    Key("node", _NODE, lambda answer: node_of(answer.scenario, answer.point)),
    Key("pin_memory", "truth", lambda answer: pins_memory(answer.scenario)),
    Key("persistent_workers", "truth", "scenario.loader.persistent_workers"),
    Key("preset", "text", "scenario.loader.preset"),
    Key("settings", "text", lambda a: loader_settings(a.scenario, a.point.workers, a.point.prefetch_factor)),
    Key("verdict", "text", "verdict.name"),
    *keys("text", "next_bottleneck", "advice", of="verdict"),
    Key("probability_within_target", "share", "probability"),
    Key("meets_target", "truth"),
    *keys("whole?", "cores_low", "cores_high"),
    *keys("number", *_HALVES, of="point.estimate"),
)
#: Of all options the setting with the fewest cores that surely meet the target; nulls where none tried does.
SURE = Record(
    Key("confidence", "share"),
    Key("option", "option?", "sure.option"),
    Key("option_name", "text?", "sure.option.label"),
    Key("cores_per_gpu", "whole?", "sure.cores"),
    *keys("whole?", "workers", "prefetch_factor", of="sure"),
    Key("memory_bytes", "amount?", lambda answer: answer.sure and node_of(answer.scenario, answer.sure).memory_bytes),
    Key("probability_within_target", "share?",
        lambda answer: answer.sure and answer.sure.estimate.probability(answer.scenario.target.gpu_idle)),
)  # fmt: skip


def _capped(at: Placed) -> Any:
    """The limit that memory sets to the workers, if it is known which memory is short."""
    cap = at.part.capped
    return cap if cap and cap.memory.short_of else None


PER_RATE = Record(*keys("number", "cores", "low", "high"))
_CAPPED = Record(
    Key("workers", "whole"),
    Key("by", {"enum": ["/dev/shm", "memory"]}, lambda cap: cap.memory.short_of[0]),
    Key("size_bytes", "number", lambda cap: cap.memory.short_of[1]),
    Key("workers_wanted", "whole", "wanted"),
    Key("needed_bytes", "number", lambda cap: cap.memory.short_of[2]),
)
_OPTION = Record(
    Key("option", "option", "part.option"),
    Key("option_name", "text", "part.option.label"),
    Key("cores_per_gpu", "whole?", "part.answer.cores"),
    Key("cores_per_gpu_sure", "whole?", "part.sure.cores"),
    *keys("whole?", "workers", "prefetch_factor", of="part.answer"),
    # Where it is known what is too small.
    Key("workers_capped", _CAPPED, _capped, null=True),
    Key("curve", _POINT, lambda at: [Placed(at.scenario, at.part, point) for point in at.part.curve], each=True),
)
#: Of the host's own cores, which may be a fraction for each accelerator.
_OWN = (Key("cores", "number", "part.cores"), *_SETTING, Key("option", "option", "point.option"))
_OWN_HOST = Record(
    *_OWN,
    Key("verdict", "text", "part.verdict.name"),
    Key("next_bottleneck", "text", "part.verdict.next_bottleneck"),
    Key("today", Record(*_OWN), lambda at: at.part.today and at._replace(point=at.part.today), null=True),
    Key("throughput_gain", "number?", "part.gain"),
)
_UNLIMITED = Record(
    Key("threads_per_worker", "whole", "each"),
    Key("threads", "whole", "crowding.threads"),
    Key("cores", "number", "crowding.cores"),
    Key("cpu_work_factor", "number", "crowding.factor"),
    Key("cure", "text", lambda _: CURE),
    *keys("share", *_IDLE, of="estimate"),
)
_STORAGE = Record(
    Key("tier", "text?", "host.storage"),
    Key("fetch_mean_s", "amount", "workload.fetch.mean"),
    Key("dataset_bytes", "amount?", data_bytes),
    Key("page_cache_miss_share", "share?", lambda scenario: (misses := misses_of(scenario)) and misses.share),
)
_ELASTICITY = Record(
    Key("input", "text", "name"),
    Key("gpu_idle_change_per_10_percent", "number", "change"),
    Key("elasticity", "number?"),
)
_BOUND = Record(
    Key("cores", "number?", lambda bound: bound.cores if math.isfinite(bound.cores) else None),
    *keys("text", "formula", "numbers", "binding"),
)
#: Of a `Recommendation`; ``metadata`` and ``today``, of a job that is a program, are given beside it.
RECOMMENDATION = Record(
    VERSION,
    constant("step_time_known", True),
    Key("recommendation", RECOMMENDED, lambda answer: answer),
    Key("sure", SURE, lambda answer: answer),
    Key("cores_per_1000_samples_per_s", PER_RATE, "per_rate"),
    Key("uncertain_inputs", Record(Key("name", "text"), Key("uncertainty", "number"), Key("share", "share")),
        "uncertain", each=True),
    Key("options", _OPTION, lambda answer: [Placed(answer.scenario, option, answer.point) for option in answer.options],
        each=True),
    Key("lower_bound_cores", "whole?", "lower_bound.whole"),
    Key("lower_bound", _BOUND),
    Key("saturating_cores", "whole?"),
    Key("rule_of_thumb_cores", "whole"),
    Key("own_host", _OWN_HOST, lambda a: a.own_host and Placed(a.scenario, a.own_host, a.own_host.point), null=True),
    Key("elasticities", _ELASTICITY, each=True),
    Key("epoch_start", Record(*keys("number", "persistent_s", "respawned_s")), null=True),
    Key("storage", _STORAGE, "scenario"),
    Key("unlimited_threads", _UNLIMITED, "unlimited", null=True),
    Key("target_gpu_idle", "share", "scenario.target.gpu_idle"),
    Key("metadata", "table"),
    Key("today", TODAY, null=True),
)  # fmt: skip
#: What is always known of a stage; of servers whose wait for a core is told, that too.
_STATION = {
    "type": "object",
    "properties": {"name": KINDS["text"], "utilisation": KINDS["number"], "blocked": KINDS["number"],
                   "starved": KINDS["number"]},
    "required": ["name", "utilisation", "blocked", "starved"],
}  # fmt: skip
#: Of an `Estimate`; ``setting`` and ``metadata`` are given beside it.
ESTIMATE = Record(
    VERSION,
    Key("setting", "table"),
    *keys("share", *_IDLE, "accelerator_utilisation"),
    *keys("number", "data_stall_s", "throughput_samples_per_s", "makespan_s"),
    Key("data_stall_fraction", "number", lambda estimate: estimate.accelerator["starved"]),
    Key("busy_cores", "number"),
    *keys("table", "accelerator", "starved_by", "trainer"),
    Key("stations", _STATION, each=True),
    Key("interval", Record(*keys("number", "level", *_HALVES)), lambda estimate: estimate),
    Key("steps", "whole"),
    Key("warm_up_steps", "whole", "warm_up"),
    Key("replications", "whole"),
    Key("metadata", "table"),
)
