"""Trainers and accelerators of the event kernel. Follows `coresim.model.pipeline` to the letter."""

from __future__ import annotations

from coresim.model.pipeline import Number
from coresim.sim.kernel.accounts import account_pick, account_rank, account_starved, account_step
from coresim.sim.kernel.clocks import push
from coresim.sim.kernel.items import accept, drop_item, offered
from coresim.sim.kernel.receiving import begin_handover, end_receiving, next_arrival, note_turns, receive_early, work_of
from coresim.sim.kernel.records import (
    BARRED,
    BEHIND,
    CONSUMING,
    COPYING,
    FETCHED,
    FETCHING,
    HANDING,
    IDLE,
    LAUNCHING,
    LEADING,
    OVERLAP,
    PREPARING,
    RECEIVING,
    STARTING,
    STREAM,
    SYNC,
    SYNCING,
    TURNING,
    UNBOUNDED,
    UNLAUNCHED,
    WAITING,
    WORKING,
    Rank,
)
from coresim.sim.kernel.servers import begin_phase, dispatch, first_time, mark_changed


def end_trainer_task(rank: Rank) -> None:
    """What the trainer was doing is over."""
    state = rank.trainer_state
    rank.maker = None  # a hand-over, if there was one, is over
    if state == PREPARING:
        end_inline(rank)
    elif state == RECEIVING:
        end_receiving(rank)
    elif state == HANDING:
        consume(rank)
    elif state == CONSUMING:
        copy_batch(rank)
    elif state == COPYING:
        rank.host.spinning -= rank.job.spin
        launch(rank)
    elif state == TURNING:
        begin_launch(rank)
    elif state == LEADING:
        end_lead(rank)
    elif state == LAUNCHING:
        end_launch(rank)
    else:
        open_epoch(rank)
        seek_batch(rank)


def begin_step(rank: Rank) -> None:
    """The trainer turns to its next step, perhaps the first of an epoch."""
    job = rank.job
    if rank.step == rank.opened:
        if rank.step == 0 or not job.persistent:
            rank.trainer_state = STARTING
            push(rank.host.wait, job.startup, rank.trainer)
            return
        open_epoch(rank)
    seek_batch(rank)


def open_epoch(rank: Rank) -> None:
    """The batches of the next epoch may be dispatched."""
    job = rank.job
    if job.worker_startup > 0 and job.stage_count > 0 and (rank.step == 0 or not job.persistent):
        stage = rank.stages[0]
        for number in range(stage.server_count):
            stage.servers[number].fresh = True
    rank.opened = rank.opened + job.epoch_batches if job.epoch_batches > 0 else UNBOUNDED
    dispatch(rank, 0)


def seek_batch(rank: Rank) -> None:
    """The trainer prepares a batch itself, or waits for one."""
    if rank.job.inline_count > 0:
        rank.trainer_state = PREPARING
        rank.phase = 0
        begin_phase(rank.trainer, rank.job.inline[0], rank.step)
    else:
        rank.trainer_state = WAITING
        mark_changed(rank)


def end_inline(rank: Rank) -> None:
    """One parallel task of the trainer's own preparation is over."""
    rank.trainer.pending -= 1
    if rank.trainer.pending > 0:
        return
    rank.phase += 1
    if rank.phase < rank.job.inline_count:
        begin_phase(rank.trainer, rank.job.inline[rank.phase], rank.step)
    else:
        account_pick(rank, rank.step)
        consume(rank)


def consume(rank: Rank) -> None:
    """The trainer does its own work on the batch."""
    rank.trainer_state = CONSUMING
    begin_phase(rank.trainer, rank.job.consumer, rank.step)


def pick_up(rank: Rank) -> bool:
    """The trainer takes its batch, or receives another early, if it waits and there is one; whether it did."""
    if rank.trainer_state != WAITING:
        return False
    last = rank.stages[rank.job.stage_count - 1]
    item = offered(last)
    if rank.job.receives_early and (item is None or not item.received):
        first = next_arrival(rank)
        if first is not None and first is not item:
            receive_early(rank, first)
            return True
    if item is None:
        return False
    accept(last)
    account_starved(rank, item)
    drop_item(rank, item)
    account_pick(rank, item.number)
    if rank.job.settling > 0:
        note_turns(rank, rank.stages[0].servers[item.server])
    if item.received:
        rank.trainer_state = CONSUMING
        push(rank.host.cores, work_of(rank, rank.step) * rank.job.release, rank.trainer)
    elif rank.job.handover_count > 0:
        rank.trainer_state = HANDING
        rank.phase = 0
        begin_handover(rank, item, rank.step)
    else:
        consume(rank)
    dispatch(rank, item.server)
    account_rank(rank)
    return True


def copy_batch(rank: Rank) -> None:
    """The batch goes to the accelerator, in the way of the copy mode."""
    job = rank.job
    if job.copy_mode == SYNC:
        rank.host.spinning += job.spin
        if rank.done < rank.step:
            rank.trainer_state = SYNCING
        else:
            start_copy(rank)
        return
    if job.copy_mode == OVERLAP and rank.copied == rank.submitted:
        begin_phase(rank.copier, job.copy, rank.copied)
    launch(rank)


def start_copy(rank: Rank) -> None:
    """A synchronous copy begins."""
    rank.trainer_state = COPYING
    begin_phase(rank.trainer, rank.job.copy, rank.step)


def end_copy(rank: Rank) -> None:
    """The copy engine has finished a copy."""
    rank.copied += 1
    if rank.copied < rank.submitted:
        begin_phase(rank.copier, rank.job.copy, rank.copied)
    start_device(rank)


def launch(rank: Rank) -> None:
    """The trainer turns to the launch of the step; without a lead, the accelerator may begin with it."""
    rank.trainer_state = LAUNCHING
    rank.submitted += 1
    work = launch_work(rank)
    if work <= 0:
        # One that takes no time is over in this instant: a turn of the event loop for it would cost as much as any.
        rank.begun += 1
        start_device(rank)
        rank.host.events += 1
        end_launch(rank)
        return
    if rank.turns > 0:
        rank.trainer_state = TURNING
        push(rank.host.wait, min(work, rank.job.settling) * rank.turns, rank.trainer)
    else:
        begin_launch(rank)
    if rank.job.lead <= 0:
        rank.begun += 1
    start_device(rank)


def launch_work(rank: Rank) -> Number:
    """What the launch of the trainer's step takes, s."""
    phase = rank.job.launch
    return phase.times[first_time(phase, rank.step, rank)]


def begin_launch(rank: Rank) -> None:
    """The trainer, which has waited for its turns, launches."""
    work = launch_work(rank)
    lead = work * rank.job.lead
    rank.trainer_state = LEADING if lead > 0 else LAUNCHING
    push(rank.host.cores, lead if lead > 0 else work, rank.trainer)


def end_lead(rank: Rank) -> None:
    """The lead is launched: the accelerator may begin."""
    work = launch_work(rank)
    rank.trainer_state = LAUNCHING
    push(rank.host.cores, work - work * rank.job.lead, rank.trainer)
    rank.begun += 1
    if rank.device_state == FETCHED:
        start_work(rank)
    else:
        start_device(rank)


def end_launch(rank: Rank) -> None:
    """The step is launched; the trainer goes on, or waits for the accelerator."""
    rank.step += 1
    if rank.device_state == UNLAUNCHED:
        arrive(rank)
    if rank.done >= rank.step - rank.job.run_ahead:
        begin_step(rank)
    else:
        rank.trainer_state = BEHIND
        rank.host.spinning += rank.job.spin


def start_device(rank: Rank) -> None:
    """The accelerator begins its next step, if all that the step needs is there."""
    job = rank.job
    if rank.device_state != IDLE or rank.done == rank.submitted:
        return
    if job.copy_mode == STREAM:
        rank.device_state = FETCHING
        begin_phase(rank.device, job.copy, rank.done)
    elif rank.begun > rank.done and (job.copy_mode != OVERLAP or rank.copied > rank.done):
        start_work(rank)


def start_work(rank: Rank) -> None:
    """The accelerator's work on a step begins."""
    job = rank.job
    rank.device_state = WORKING
    if job.trace and rank.done < job.steps:
        rank.begins[rank.done] = rank.host.wait.now
    push(rank.host.accelerator, job.step.times[first_time(job.step, rank.done, rank)], rank.device)


def end_work(rank: Rank) -> None:
    """The accelerator has done the work of a step (or the copy before it)."""
    if rank.device_state == FETCHING and rank.begun == rank.done:
        rank.device_state = FETCHED
    elif rank.device_state == FETCHING:
        start_work(rank)
    elif rank.step == rank.done:
        rank.device_state = UNLAUNCHED
    else:
        arrive(rank)


def arrive(rank: Rank) -> None:
    """A step is done on this rank; with a barrier it waits for the others."""
    host = rank.host
    if not rank.job.barrier:
        end_step(rank)
        return
    rank.device_state = BARRED
    host.arrived += 1
    if host.arrived == rank.job.ranks_per_host:
        host.paused = True


def end_step(rank: Rank) -> None:
    """The accelerator has finished a step."""
    job = rank.job
    account_rank(rank)
    if job.trace and rank.done < job.steps:
        rank.finishes[rank.done] = rank.host.wait.now
    rank.device_state = IDLE
    rank.done += 1
    account_step(rank)
    if rank.trainer_state == SYNCING and rank.done == rank.step:
        start_copy(rank)
    elif rank.trainer_state == BEHIND and rank.done >= rank.step - job.run_ahead:
        rank.host.spinning -= job.spin
        begin_step(rank)
    start_device(rank)
