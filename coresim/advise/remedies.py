"""The remedies: what each one changes in the scenario, and what it rests on.

A ``measured`` remedy uses only the scenario's own numbers, a ``recorded`` one a table of ours from another machine, an
``assumed`` one a stated range, because no measurement exists. Remedies that are not measured have a gentle and a
hopeful change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from coresim.advise import prices
from coresim.advise import transforms as after
from coresim.advise.transforms import Transform
from coresim.model.crowding import CURE
from coresim.model.scenario import Scenario
from coresim.model.service import ZERO

#: What a remedy may rest on, the surest first.
PROVENANCES = ("measured", "recorded", "assumed")
#: Below this share of the preparation, sparing the decoding gains nothing: it is less than the spread between fresh
#: processes.
LEAST_DECODE = 0.05


@dataclass(frozen=True)
class Remedy:
    """One thing to do.

    Attributes:
        price: what it costs besides.
        transforms: the scenario after it: one change, or a gentle and a hopeful one; none where ``more`` is the remedy.
        provenance: one of `PROVENANCES`.
        assumptions: the numbers of the change and where they come from.
        more: ``workers`` or ``cores`` where more of them is the remedy.
        numbers: the price in this job's own numbers, where they are known.
        possible: whether nothing known speaks against it.
        alone: whether the step runs on the CPU cores, so that nothing overlaps.
        decodes: whether it spares decoding, and so fits only a job that decodes.
    """

    name: str
    what: str
    price: str
    transforms: tuple[Transform, ...] = ()
    provenance: str = PROVENANCES[0]
    assumptions: str = "this job's own numbers"
    more: str = ""
    numbers: Callable[[Scenario], str] = lambda scenario: ""
    possible: Callable[[Scenario], bool] = lambda scenario: True
    alone: bool = False
    decodes: bool = False

    def fits(self, scenario: Scenario) -> bool:
        """Whether it can change anything in this job."""
        share = scenario.workload.decode_share
        if self.decodes and share is not None and share < LEAST_DECODE:
            return False
        return bool(self.more) or any(change(scenario) != scenario for change in self.transforms)

    def price_of(self, scenario: Scenario) -> str:
        """The price in words and, where they are known, in the job's numbers."""
        numbers = self.numbers(scenario)
        return f"{self.price}: {numbers}" if numbers else self.price


#: In the order of their costs. Ranges without a source are ours, wide on purpose; a measurement replaces them.
REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "one-library-thread",
        f"one library thread in every worker ({CURE})",
        "nothing",
        (after.keys("loader", library_threads=1),),
        "recorded",
        "as two published cases of threads that fight price it, widely",
    ),
    Remedy(
        "more-workers",
        "as many workers as do best on the same cores, more or fewer than today",
        "memory",
        more="workers",
    ),
    Remedy("more-prefetch", "twice the batches out per worker", "memory", (after.prefetch_more,)),
    Remedy(
        "out-of-order",
        "batches in the order in which they are ready",
        "the order of samples, which is then a matter of timing",
        (after.keys("loader", ordered=False),),
    ),
    Remedy("more-cores", "the fewest cores that meet the target, fewer than now or more", "cores", more="cores"),
    Remedy(
        "larger-batch",
        "twice the samples per batch",
        "GPU memory; the training's own recipe",
        (after.batch_twice(2.0), after.batch_twice(1.8)),
        "assumed",
        "step x 1.8 to 2.0, per-batch times in proportion, the launch as it is",
    ),
    Remedy(
        "cache-in-ram",
        "every sample from memory after the first epoch",
        "RAM for the whole data set",
        (after.keys("workload", fetch=ZERO),),
        "measured",
        "fetching takes no time",
        numbers=prices.in_memory,
        possible=prices.fits_in_memory,
    ),
    Remedy(
        "local-nvme",
        "every sample from a local NVMe drive",
        "a drive for the whole data set",
        (after.from_tier("ssd-nvme"),),
        "recorded",
        "latency, bandwidth and IOPS of ssd-nvme (coresim storage)",
        numbers=prices.whole_set,
    ),
    Remedy(
        "faster-decoder",
        "another library for the same decoding",
        "a dependency",
        (after.decoder(0.15), after.decoder(0.4)),
        "assumed",
        "preparation x 0.6 to 0.85, at the most without the decoding that was measured",
        decodes=True,
    ),
    Remedy(
        "raw-format",
        "decoded samples on disk (npy) instead of JPEG",
        "5.4 times the storage",
        (after.decoder(0.36, fetch=5.4), after.decoder(0.36)),
        "recorded",
        "CPU per sample x 0.64, at the most without the decoding that was measured, bytes x 5.4"
        " (calibration/formats.csv, one machine; fetch x 1 to 5.4)",
        numbers=partial(prices.stored_times, factor=5.4),
        decodes=True,
    ),
    Remedy(
        "offline-resize",
        "store the pictures no larger than training takes them; augmentation stays random",
        "storage for the smaller pictures, one-off CPU hours",
        (after.times(preprocess=0.7, fetch=0.6), after.times(preprocess=0.35, fetch=0.2)),
        "assumed",
        "preparation x 0.35 to 0.7, bytes x 0.2 to 0.6",
        numbers=prices.read_once,
        decodes=True,
    ),
    Remedy(
        "offline",
        "prepare once and store, read and collate only",
        "storage for the prepared samples, one-off CPU hours, no random augmentation",
        (after.times(preprocess=0.2), after.times(preprocess=0.05)),
        "assumed",
        "preparation x 0.05 to 0.2",
        numbers=prices.prepared_once,
    ),
    Remedy(
        "threads",
        "threads instead of processes",
        "code that releases the lock",
        (after.threads(0.3), after.threads(0.0)),
        "assumed",
        "the interpreter's lock is held for 0 to 30 % of the work",
    ),
    Remedy(
        "gpu-decode",
        "decode on the GPU",
        "GPU time and memory",
        (after.decode(0.2, 0.3e-3), after.decode(0.0, 0.05e-3)),
        "assumed",
        "80 to 100 % of the decoding leaves the CPU, 0.05 to 0.3 ms of GPU time per sample",
        numbers=partial(prices.gpu_share, least=0.05e-3, most=0.3e-3),
        decodes=True,
    ),
    Remedy(
        "gpu-transforms",
        "decode and transform on the GPU",
        "GPU time and memory",
        (after.on_device(0.2, 0.5e-3), after.on_device(0.05, 0.1e-3)),
        "assumed",
        "5 to 20 % of the preparation stays, 0.1 to 0.5 ms of GPU time per sample",
        numbers=partial(prices.gpu_share, least=0.1e-3, most=0.5e-3),
    ),
    Remedy(
        "mixed-precision",
        "a faster step",
        "more cores: the GPU asks for more samples",
        (after.times(step=0.4), after.times(step=0.7)),
        "assumed",
        "step x 0.4 to 0.7",
    ),
    Remedy(
        "remote-workers",
        "other machines prepare, over the network",
        "the other machines and the network",
        (after.remote(0.3e-3), after.remote(0.05e-3)),
        "assumed",
        "receiving takes 0.05 to 0.3 ms of CPU per sample",
    ),
    Remedy(
        "no-gpu",
        "the step on the CPU, on all cores; idle is what is missing to the GPU's own throughput",
        "time",
        (after.on_cpu,),
        "measured",
        "the measured accelerator.cpu_step, preparing and stepping in turns on the same cores",
        alone=True,
    ),
)
