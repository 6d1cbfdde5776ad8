"""The remedies: each changes the scenario, and rests on something.

``measured`` is the scenario's own numbers alone, ``recorded`` a table of ours, of another machine, ``assumed`` a range
that is stated, for want of a measurement. What is not measured has a gentle and a hopeful change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coresim.advise import prices
from coresim.advise import transforms as after
from coresim.advise.prices import Price
from coresim.advise.transforms import Transform
from coresim.model.crowding import CURE
from coresim.model.scenario import Scenario

#: What a remedy may rest on, the surest first.
RESTS = ("measured", "recorded", "assumed")
#: Share of the preparation below which decoding is nothing to spare: less than the spread between fresh processes.
LEAST_DECODE = 0.05


@dataclass(frozen=True)
class Remedy:
    """One thing to do.

    Attributes:
        name: as on the command line.
        what: what changes.
        rests: one of `RESTS`.
        basis: the numbers of the change and where they come from.
        price: what it costs besides.
        changes: the scenario after it: one change, or a gentle and a hopeful one.
        more: ``workers`` or ``cores`` where more of them is the remedy.
        numbers: the price in this job's own numbers, where they are known.
        possible: whether nothing known speaks against it.
        alone: whether the step runs on the cores and not beside them, so that nothing overlaps.
        decodes: whether it spares decoding, and so fits only a job that decodes.
    """

    name: str
    what: str
    rests: str
    basis: str
    price: str
    changes: tuple[Transform, ...]
    more: str = ""
    numbers: Price = lambda scenario: ""
    possible: Callable[[Scenario], bool] = lambda scenario: True
    alone: bool = False
    decodes: bool = False

    def fits(self, scenario: Scenario) -> bool:
        """Whether it can change anything in this job."""
        share = scenario.workload.decode_share
        if self.decodes and share is not None and share < LEAST_DECODE:
            return False
        return bool(self.more) or any(change(scenario) != scenario for change in self.changes)

    def price_of(self, scenario: Scenario) -> str:
        """The price in words and, where they are known, in the job's numbers."""
        numbers = self.numbers(scenario)
        return f"{self.price}: {numbers}" if numbers else self.price


#: In the order in which they cost. Ranges without a source are ours, wide on purpose; a measurement replaces them.
REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "one-library-thread",
        f"one library thread in every worker ({CURE})",
        "recorded",
        "as two published cases of threads that fight price it, widely",
        "nothing",
        (after.keys("loader", library_threads=1),),
    ),
    Remedy(
        "more-workers",
        "as many workers as do best on the same cores, more or fewer than today",
        "measured",
        "this job's own numbers",
        "memory",
        (),
        more="workers",
    ),
    Remedy(
        "more-prefetch",
        "twice the batches out per worker",
        "measured",
        "this job's own numbers",
        "memory",
        (after.prefetch_more,),
    ),
    Remedy(
        "out-of-order",
        "batches in the order in which they are ready",
        "measured",
        "this job's own numbers",
        "the order of samples, which is then a matter of timing",
        (after.keys("loader", ordered=False),),
    ),
    Remedy(
        "more-cores",
        "the fewest cores that meet the target, fewer than now or more",
        "measured",
        "this job's own numbers",
        "cores",
        (),
        more="cores",
    ),
    Remedy(
        "larger-batch",
        "twice the samples per batch",
        "assumed",
        "step x 1.8 to 2.0, per-batch times in proportion, the launch as it is",
        "GPU memory; the training's own recipe",
        (after.batch_twice(2.0), after.batch_twice(1.8)),
    ),
    Remedy(
        "cache-in-ram",
        "every sample from memory after the first epoch",
        "measured",
        "fetching takes no time",
        "RAM for the whole data set",
        (after.no_fetch,),
        numbers=prices.in_memory,
        possible=prices.fits_in_memory,
    ),
    Remedy(
        "local-nvme",
        "every sample from a local NVMe drive",
        "recorded",
        "latency, bandwidth and IOPS of ssd-nvme (coresim storage)",
        "a drive for the whole data set",
        (after.from_tier("ssd-nvme"),),
        numbers=prices.whole_set,
    ),
    Remedy(
        "faster-decoder",
        "another library for the same decoding",
        "assumed",
        "preparation x 0.6 to 0.85, at the most without the decoding that was measured",
        "a dependency",
        (after.decoder(0.15), after.decoder(0.4)),
        decodes=True,
    ),
    Remedy(
        "raw-format",
        "decoded samples on disk (npy) instead of JPEG",
        "recorded",
        "CPU per sample x 0.64, at the most without the decoding that was measured, bytes x 5.4"
        " (calibration/formats.csv, one machine; fetch x 1 to 5.4)",
        "5.4 times the storage",
        (after.decoder(0.36, fetch=5.4), after.decoder(0.36)),
        numbers=prices.stored_times(5.4),
        decodes=True,
    ),
    Remedy(
        "offline-resize",
        "store the pictures no larger than training takes them; augmentation stays random",
        "assumed",
        "preparation x 0.35 to 0.7, bytes x 0.2 to 0.6",
        "storage for the smaller pictures, one-off CPU hours",
        (after.workload(preprocess=0.7, fetch=0.6), after.workload(preprocess=0.35, fetch=0.2)),
        numbers=prices.read_once,
        decodes=True,
    ),
    Remedy(
        "offline",
        "prepare once and store, read and collate only",
        "assumed",
        "preparation x 0.05 to 0.2",
        "storage for the prepared samples, one-off CPU hours, no random augmentation",
        (after.workload(preprocess=0.2), after.workload(preprocess=0.05)),
        numbers=prices.prepared_once,
    ),
    Remedy(
        "threads",
        "threads instead of processes",
        "assumed",
        "the interpreter's lock is held for 0 to 30 % of the work",
        "code that releases the lock",
        (after.threads(0.3), after.threads(0.0)),
    ),
    Remedy(
        "gpu-decode",
        "decode on the GPU",
        "assumed",
        "80 to 100 % of the decoding leaves the CPU, 0.05 to 0.3 ms of GPU time per sample",
        "GPU time and memory",
        (after.decode(0.2, 0.3e-3), after.decode(0.0, 0.05e-3)),
        numbers=prices.gpu_share(0.05e-3, 0.3e-3),
        decodes=True,
    ),
    Remedy(
        "gpu-transforms",
        "decode and transform on the GPU",
        "assumed",
        "5 to 20 % of the preparation stays, 0.1 to 0.5 ms of GPU time per sample",
        "GPU time and memory",
        (after.on_device(0.2, 0.5e-3), after.on_device(0.05, 0.1e-3)),
        numbers=prices.gpu_share(0.1e-3, 0.5e-3),
    ),
    Remedy(
        "mixed-precision",
        "a faster step",
        "assumed",
        "step x 0.4 to 0.7",
        "more cores: the GPU asks for more samples",
        (after.step(0.4), after.step(0.7)),
    ),
    Remedy(
        "remote-workers",
        "other machines prepare, over the network",
        "assumed",
        "receiving takes 0.05 to 0.3 ms of CPU per sample",
        "the other machines and the network",
        (after.remote(0.3e-3), after.remote(0.05e-3)),
    ),
    Remedy(
        "no-gpu",
        "the step on the CPU, on all cores; idle is what is missing to the GPU's own pace",
        "measured",
        "the measured accelerator.cpu_step, preparing and stepping in turns on the same cores",
        "time",
        (after.on_cpu,),
        alone=True,
    ),
)
