"""The report of `coresim doctor`: the usable cores term by term, misleading facts of this host, and optional parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from coresim.model.host import HostFacts, OptionalPart
from coresim.report.content import Facts, Section, Verbatim
from coresim.report.plain import answer_lines
from coresim.units import format_bytes


def cores_sentence(facts: HostFacts) -> str:
    """The minimum in words, such as ``usable cores 2 = min(affinity 2, quota none, physical 2)``."""
    return f"usable cores {facts.usable_cores:.4g} = min({', '.join(term.words for term in facts.terms)})"


def doctor_text(facts: HostFacts, parts: Sequence[OptionalPart]) -> str:
    """The report for a terminal, without a final newline."""
    terms = tuple(f"{term.words}: {term.explanation}" for term in facts.terms)
    warnings = [f"! {one.what}: {one.value}\n  remedy: {one.remedy}" for one in facts.warnings]
    return answer_lines(
        "",
        Section(cores_sentence(facts), (Verbatim("\n".join(terms)),)),
        Section("Host", (Facts(_host(facts)),)),
        Section(f"Warnings: {len(warnings) or 'none'}", (Verbatim("\n".join(warnings)),)),
        Section("Optional parts", (Verbatim("\n".join(map(_part_line, parts))),)),
    )


def doctor_dict(facts: HostFacts, parts: Sequence[OptionalPart]) -> dict[str, Any]:
    """The same for machines: one JSON-ready object, units in the keys."""
    return {
        "format": "coresim-doctor",
        "schema_version": 1,
        "usable_cores": facts.usable_cores,
        "summary": cores_sentence(facts),
        "host": facts.to_dict(),
        "parts": [asdict(part) for part in parts],
    }


def _host(facts: HostFacts) -> tuple[tuple[str, str], ...]:
    cache = _known(facts.last_level_cache_bytes, format_bytes)
    hints = ", ".join(f"{name}={value}" for name, value in facts.hints.items())
    return (
        ("CPU", facts.cpu_model or "unknown"),
        ("topology", _topology(facts)),
        ("NUMA nodes", f"{_known(facts.numa_nodes)} {' | '.join(facts.numa_cpus)}".rstrip()),
        ("cpuset", facts.cpuset_cpus or "none"),
        ("last-level cache", f"{_known(facts.last_level_caches)} of {cache}"),
        ("memory", _memory(facts)),
        ("/dev/shm", f"{_known(facts.shm_bytes, format_bytes)}, {_known(facts.shm_free_bytes, format_bytes)} free"),
        ("other processes", _known(facts.other_load_cores, "keep {:.2g} of these cores busy".format)),
        ("throttled", _known(facts.throttled_fraction, "{:.1%} of quota periods".format)),
        ("stolen", _known(facts.steal_fraction, "{:.1%} of wanted CPU time since boot".format)),
        ("hints", hints or "none"),
        ("fingerprint", facts.fingerprint),
    )


def _topology(facts: HostFacts) -> str:
    kind = {True: "virtual", False: "bare metal or hidden hypervisor", None: "virtual or not: unknown"}
    return (
        f"sockets {_known(facts.sockets)}, physical cores {_known(facts.physical_cores)}, "
        f"threads per core {_known(facts.threads_per_core)}, hardware threads {_known(facts.logical_cpus)}; "
        f"{kind[facts.hypervisor]}"
    )


def _memory(facts: HostFacts) -> str:
    limit = "none" if facts.memory_limit_bytes is None else format_bytes(facts.memory_limit_bytes)
    size, free = (_known(count, format_bytes) for count in (facts.memory_bytes, facts.memory_available_bytes))
    return f"{size}, {free} available, control-group limit {limit}"


def _part_line(part: OptionalPart) -> str:
    state = "yes" if part.present else "no "
    version = f" {part.version}" if part.version else ""
    remedy = f"; {part.remedy}" if part.remedy else ""
    return f"{state} {part.name}{version}: {part.detail}{remedy}"


def _known(value: float | None, words: Callable[[Any], str] = str) -> str:
    return "unknown" if value is None else words(value)
