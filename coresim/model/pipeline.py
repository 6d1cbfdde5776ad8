"""The input pipeline of one training job as a frozen description that every engine takes unchanged.

Semantics, which both engines follow to the letter
--------------------------------------------------
A *rank* is one accelerator with its trainer process and its own loader. ``ranks`` of them share one host's
cores and storage; ``hosts`` identical hosts are joined by nothing but the data-parallel barrier.

**Line.** Batches 0, 1, 2, ... enter stage 0, pass the stages in order and are picked up by the trainer. With
no stages the trainer prepares each batch itself (``Trainer.inline``).

*Dispatch.* Batch ``i`` of a rank is dispatched when ``i < picked + credits`` (no limit for ``None``), where
``picked`` counts the batches that the trainer has picked up, and when its epoch is open. A ``shared`` stage
lets any free server take the next item. In a ``round_robin`` stage 0, batch ``i`` of an epoch belongs to server
``i mod servers`` if ``ordered``; otherwise the epoch's first ``credits`` batches are dealt so, and each later
one goes to the server whose batch was just picked up. Each server serves its own batches first come, first served.

*Service.* A server performs the phases of an item one after another. A ``cores`` phase is a runnable task: with
``n`` runnable tasks on the host, ``p`` of them spinning, each progresses at ``core_rate(n, p)``. A ``storage`` phase
holds no core and progresses at ``storage_rate(m)`` with ``m`` such phases under way. A ``wait`` phase takes its time
and holds no core. A phase with ``split`` > 1 is that many parallel tasks and ends with the last of them.

*Quota.* With ``cpus``, more than ``cores``, tasks run on that many cores, and in each ``quota_period`` (the first
begins at 0) they have ``cores * quota_period`` core-seconds, as in a container with a CPU limit. When these are used
up, no core is busy and no ``cores`` phase progresses until the next period. Without one, ``cpus`` below is ``cores``.

*Hand-over.* ``buffer`` is the number of items that may stand ready behind a stage. With ``None`` a finished item
is handed over at once. With a number, a finished item stays in its server, which is *blocked*, until there is room;
in an ``ordered`` stage also until all earlier items of the stage have been handed over, in others until those
that finished before it have (lower number first at ties). Items are taken from an ``ordered`` stage in the order of
their numbers, from others in the order in which they were handed over, lower number first at ties.

*Grain.* Samples are numbered: sample ``s`` belongs to batch ``s // batch_size``. A ``sample`` stage 0 takes the
samples of dispatched batches in that order. Before a ``sample`` stage that follows a ``batch`` stage stands a
*splitter*: empty, it takes one ready batch; servers take that batch's samples from it one by one. Behind a ``sample``
stage whose follower (the trainer included) takes batches stands a *gatherer*: it takes ready samples one by one until
it holds ``batch_size`` of them; at that instant they are a ready batch, numbered by its turn (0, 1, 2, ...), and the
gatherer takes no more until that batch has been taken.

*Ties.* At any instant, first everything that finishes then is finished. Only when nothing more finishes at this
instant are finished items handed over as far as there is room; then *one* item is taken: by the lowest stage that
can take (its splitter before its servers, both before the gatherer behind it; the trainer comes last), there at the
lowest rank, by its free server of the lowest number. Then again from the top.

**Trainer.** For step ``i`` the trainer (1) performs the inline phases, or waits for a batch and picks it up; (2)
*receives* it: with ``handover`` it waits for the time of the hand-over's state at most, without a core; then it does
``consumer``, a cores phase (after inline phases too); (3) copies: with ``sync`` it first waits until the accelerator
has finished all earlier steps, then for the copy's time; ``stream`` hands the copy to the accelerator, which performs
it before the step; ``overlap`` hands it to a copy engine that performs one after another; ``none`` copies nothing; (4)
performs ``launch``, a cores phase that *waits for turns*; (5) waits until the accelerator has finished step ``i -
run_ahead``. Waiting for the accelerator or a synchronous copy holds a core as a runnable task if ``spin``, and none
otherwise. Waiting for a batch holds none.

*Receiving early.* Behind an ``ordered`` last stage without a ``buffer``, a trainer that waits receives batches in the
order in which they finished (lower number first at ties), as torch's ``DataLoader`` reads its queue of results. While
the batch whose turn it is has not been received, it begins with the one that finished first of those not received. If
that is another one, it performs (2) with the state and the times of that one but without the share ``release`` of
``consumer``, and goes on waiting; all this counts as waiting. When its turn comes, (2) is only that share.

*State of a hand-over.* The maker of a batch is the server of stage 0 that served it. If it finished the batch at the
instant of the pick-up, it ``begin``s if it serves another item then, and ``send``s else. If it finished the batch
before, it is at ``work`` if it serves another item, and ``rest``s else. Behind later stages the state is
``begin`` if the last stage finished the batch at this instant, and ``rest`` else. With ``m`` other servers of stage 0
that start up or perform a cores phase then, on the whole host, ``m + 1 + ranks`` want a core: the cores are ``free`` if
that is at most ``cpus``, ``crowded`` if it is at least twice as many, and ``shared`` else. With one stage, if the maker
serves an item, the hand-over ends at the latest when the time of ``rest``, with the cores as then, has
passed since the item that it serves was done.

*Waiting for turns.* A thread that begins to work shares one core with one other, until the scheduler has evened out.
If the cores were ``shared`` at the pick-up and ``n`` wanted one, the launch begins with a wait of min(``launch``,
``settling``) (2 - n / cpus), without a core; on its share of all cores it takes n / cpus times as long as alone.

**Accelerator.** Step ``i`` starts when step ``i - 1`` has finished, the launch of ``i`` has begun (with ``lead``: that
share of its work is done) and the copy of ``i`` has ended. Its work progresses at ``accelerator_rate(k)`` with ``k`` =
busy cores. It finishes when its work is done and its launch has ended. With ``barrier``, it finishes for all ranks of
all hosts at the instant when the last of them is done, plus ``allreduce``.

**Start and epochs.** Before the first batch, and before each later epoch unless ``persistent``, the trainer spends
``startup`` without a core, and each server of stage 0 has ``worker_startup`` of cores work to do before its first item
of that epoch. An epoch of ``epoch_batches`` opens when the trainer has done step 5 of the last step of the one before
and the start-up, if any, is over; no batch of an epoch is dispatched before. ``None`` is one endless epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from coresim.model.checks import are_positive, at, check, check_count, check_line, is_finite, kept_hash
from coresim.model.handover import STATES
from coresim.model.service import ZERO, Service

#: A number that both engines compute with: float, int or Fraction.
Number = Any

RESOURCES, COPY_MODES = ("cores", "storage", "wait"), ("sync", "stream", "overlap", "none")


@dataclass(frozen=True)
class Phase:
    """One part of a server's work on an item.

    ``pooled`` servers of a pool run on without a pause from item to item; the phase then takes the time between two
    completions of that pool (used for fetches in flight).
    """

    name: str
    resource: str = "cores"  # one of `RESOURCES`
    service: Service = ZERO  # time of one repeat, s
    repeats: int = 1  # independent ones, such as the samples of a batch
    split: int = 1  # parallel tasks among which the repeats are divided
    pooled: int = 1
    shared_cv: float = 0.0  # relative standard deviation of a factor that all repeats of an item share

    __hash__ = kept_hash

    def __post_init__(self) -> None:
        known = self.resource in RESOURCES
        check(known, "phase {}: resource {!r} is not one of {}", self.name, self.resource, RESOURCES)
        check_count(self.repeats, "phase {}: repeats", self.name)
        check_count(self.split, "phase {}: split", self.name)
        check_count(self.pooled, "phase {}: pooled", self.name)


@dataclass(frozen=True)
class Stage:
    """Servers with a discipline and a buffer; see the module's text for what each field means.

    ``grain`` is ``batch`` or ``sample``; ``dispatch`` is ``shared`` or ``round_robin`` (stage 0 only).
    """

    name: str
    servers: int
    phases: tuple[Phase, ...]
    grain: str = "batch"
    buffer: int | None = None
    ordered: bool = True
    dispatch: str = "shared"

    def __post_init__(self) -> None:
        name = self.name
        check_count(self.servers, "stage {}: servers", name)
        check(bool(self.phases), "stage {}: at least one phase is needed", name)
        check(self.grain in ("batch", "sample"), "stage {}: grain {!r} is not batch or sample", name, self.grain)
        check(self.dispatch in ("shared", "round_robin"), "stage {}: dispatch {!r}", name, self.dispatch)
        if self.buffer is not None:
            check_count(self.buffer, "stage {}: buffer", name)
        if self.grain == "sample":
            check(all(phase.split == 1 for phase in self.phases), "stage {}: a sample cannot be split", name)


@dataclass(frozen=True)
class Trainer:
    """The trainer's process: what it does for each step, in this order.

    ``handover`` has a wait phase for each of `coresim.model.handover.STATES`, in order, or none. ``lead`` is a share of
    ``launch``, ``release`` one of ``consumer``. After ``settling`` s a launch has an equal share of the cores.
    """

    inline: tuple[Phase, ...] = ()
    handover: tuple[Phase, ...] = ()
    consumer: Phase = field(default_factory=lambda: Phase("consumer"))
    copy: Phase = field(default_factory=lambda: Phase("copy", "wait"))
    launch: Phase = field(default_factory=lambda: Phase("launch"))
    copy_mode: str = "sync"
    spin: bool = True
    run_ahead: int = 0
    settling: Number = 0.0
    lead: Number = 0
    release: Number = 0

    def __post_init__(self) -> None:
        check(self.copy_mode in COPY_MODES, "trainer: copy_mode {!r} is not one of {}", self.copy_mode, COPY_MODES)
        check_count(self.run_ahead, "trainer: run_ahead", least=0)
        check(self.consumer.resource == self.launch.resource == "cores", "trainer: consumer and launch hold a core")
        check(self.copy.resource == "wait", "trainer: a copy holds no core of its own")
        check(len(self.handover) in (0, len(STATES)), "trainer: handover needs a phase for each of {}", STATES)
        check(self.consumer.split == self.copy.split == self.launch.split == 1, "trainer: only inline phases split")


@dataclass(frozen=True)
class Pipeline:
    """A whole job: the line of stages, the trainer, the accelerator, and the host that they share.

    With ``cpus``, more than ``cores``, these are a CPU quota: of each ``quota_period`` (s).
    ``speed_uncertainty`` is the relative standard uncertainty of ``speed`` beyond one core; engines do not read it.
    ``siblings`` is the share of a core that a second hardware thread adds to each core when all are busy, and
    ``sharing_loss`` the share of their time that no task gets then. Each `Number` may be a Fraction; times are in s.
    """

    stages: tuple[Stage, ...]
    trainer: Trainer
    step: Phase
    cores: Number = 1.0
    batch_size: int = 1
    credits: int | None = None
    speed: tuple[Number, ...] = (1.0,)
    siblings: Number = 0
    sharing_loss: Number = 0
    storage_streams: Number | None = None
    slowdown: tuple[Number, ...] = (1.0,)
    ranks: int = 1
    hosts: int = 1
    barrier: bool = False
    allreduce: Number = 0.0
    epoch_batches: int | None = None
    persistent: bool = True
    startup: Number = 0.0
    worker_startup: Number = 0.0
    speed_uncertainty: float = 0.0
    cpus: Number | None = None
    quota_period: Number = 0.1

    __hash__ = kept_hash

    def __post_init__(self) -> None:
        check_count(self.batch_size, "batch_size")
        check_count(self.ranks, "ranks")
        check_count(self.hosts, "hosts")
        check_count(1 if self.credits is None else self.credits, "credits")
        check_count(1 if self.epoch_batches is None else self.epoch_batches, "epoch_batches")
        check(is_finite(self.cores) and self.cores > 0, "cores {!r}: must be positive", self.cores)
        check((self.cpus is None or self.cpus > 0) and self.quota_period > 0, "cpus, quota_period: must be positive")
        check(are_positive(self.speed), "speed: must be positive")
        check(are_positive(self.slowdown), "slowdown: positive")
        check(self.storage_streams is None or self.storage_streams > 0, "storage_streams: must be positive")
        for number in (self.allreduce, self.startup, self.worker_startup, self.siblings, self.sharing_loss):
            check(is_finite(number) and number >= 0, "{!r}: must be finite and not negative", number)
        check_line(self)

    @property
    def receives_early(self) -> bool:
        """Whether the trainer receives later batches while it waits, and needs any time to receive them."""
        takes_time = bool(self.trainer.handover) or not self.trainer.consumer.service.is_zero
        last = self.stages[-1] if self.stages else None
        return takes_time and last is not None and last.ordered and last.buffer is None and last.grain == "batch"

    @property
    def has_quota(self) -> bool:
        """Whether a CPU quota holds: tasks run on more cores at once than they have in the long run."""
        return self.cpus is not None and self.cpus > self.cores

    @property
    def width(self) -> Number:
        """Cores on which tasks run."""
        return self.cpus if self.has_quota else self.cores

    @property
    def total_ranks(self) -> int:
        """Accelerators on all hosts."""
        return self.ranks * self.hosts

    def phases(self) -> Iterator[tuple[str, Phase, str]]:
        """Every phase with its key (``stage.phase``) and the grain of its items, in the order of the line."""
        for stage in self.stages:
            for phase in stage.phases:
                yield f"{stage.name}.{phase.name}", phase, stage.grain
        trainer = self.trainer
        for phase in (*trainer.inline, *trainer.handover, trainer.consumer, trainer.copy, trainer.launch):
            yield f"trainer.{phase.name}", phase, "batch"
        yield "accelerator.step", self.step, "batch"

    def items(self, grain: str) -> int:
        """How many items of that grain a batch is."""
        return self.batch_size if grain == "sample" else 1

    def busiest(self) -> int:
        """The most tasks that can be runnable on a host's cores at once."""
        servers = sum(stage.servers * max(phase.split for phase in stage.phases) for stage in self.stages)
        inline = max((phase.split for phase in self.trainer.inline), default=1)
        return self.ranks * (servers + inline)

    @property
    def one(self) -> Number:
        """The number 1 in the number type of the host's description, so that whole numbers divide exactly."""
        return 1.0 if isinstance(self.cores, float) else Fraction(1)

    def core_rate(self, tasks: int, spinning: int = 0) -> Number:
        """Progress per second of each of ``tasks`` runnable tasks: s(k) min(tasks, width) / tasks.

        The ``spinning`` ones move no memory, so k counts the cores at work for the others. Tasks beyond the width, up
        to one more for each core, add ``siblings``. From ``width`` tasks on, ``sharing_loss`` of the work is lost.
        """
        busy = min(tasks, self.width)
        at_work = busy * (tasks - spinning) * self.one / tasks if spinning else busy
        work = at(self.speed, max(at_work - 1, 0)) * busy * self.one
        if tasks >= self.width:
            work = work * (1 + self.siblings * min(1, (tasks - self.width) / self.width)) * (1 - self.sharing_loss)
        return work / tasks

    def storage_rate(self, reads: int) -> Number:
        """Progress per second of each of ``reads`` storage phases: all at full speed up to ``storage_streams``."""
        if self.storage_streams is None or reads <= self.storage_streams:
            return self.one
        return self.storage_streams * self.one / reads

    def accelerator_rate(self, tasks: int) -> Number:
        """Progress per second of a step while ``tasks`` are runnable: 1 / slowdown at that many busy cores."""
        return self.one / at(self.slowdown, min(tasks, self.width))
