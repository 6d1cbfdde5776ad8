"""The plain overlapped line as a recurrence: no events, no heaps, a few additions and comparisons per step.

Where nobody slows anybody down, an ordered round-robin loader, its trainer and its accelerator are (max, +) linear
(Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, Wiley 1992): every time is the latest of a few
earlier ones plus a service time. From the semantics of `coresim.model.pipeline`, with W servers and all times before
step 0 being 0::

    taken[i]    = max(done[i - W], pick[i - credits])        its server is free, and it is dispatched
    done[i]     = taken[i] + its phases
    pick[i]     = max(ready[i], done[i])
    consumed[i] = pick[i] + consumer[i]
    begun[i]    = max(consumed[i], end[i - 1])               sync copy; else begun = copied = consumed
    copied[i]   = begun[i] + copy[i]
    end[i]      = max(max(copied[i], end[i - 1]) + step[i], launched[i])
    launched[i] = copied[i] + launch[i],   ready[i + 1] = max(launched[i], end[i - run_ahead])

What straddles an edge of the window [begin, end] = [end[warm_up - 1], end[steps - 1]]
-----------------------------------------------------------------------------------
All that concerns batch i < warm_up is over by end[i] <= begin, and all of i < steps by end. As ready[i] >=
end[i - 1 - run_ahead], the batches i >= warm_up + run_ahead + credits are not taken before begin, and i >= steps +
run_ahead + credits not before end. So `clip` books the batches near the edges piece by piece, and `walk` all others.
The accelerator idles for batch i from end[i - 1], which is never before ready[i].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coresim.sim.compiled import compiled, entry

Counts = NDArray[np.int64]
Times = NDArray[np.float64]
#: An index that cannot be negative: numba then leaves out the test whether it counts from the array's end.
Place = np.uint64

# Counts: the description, places in the times, where the rings stand.
(SERVERS, CREDITS, AHEAD, PHASES, SYNC, ROWS, STEPS, WARM_UP, BLOCKS, WINDOW, FREE, PICKS, ENDS, BLOCK_END, BLOCK_BUSY,
 WEIGHTS, TAPES, SERVER, CREDIT, LAST, ROW, ITEMS, TIED, COUNTS) = range(24)  # fmt: skip
# Times: scalars, then two accounts, before the window (ACCOUNT) and in it (at count WINDOW), then rings and tables.
READY, ENDED, PICKED, BEGIN, END, ACCOUNT = range(6)
# Columns of an account: the accelerator's time, the trainer's, the stage's; starved by queue and, after it, by phases.
(BUSY, LAUNCH, COPY, CONSUMER, T_STARVED, T_DEVICE, T_COPY, T_CONSUMER, T_LAUNCH, SERVICE, ON_CORES, OUTSTANDING,
 QUEUE) = range(13)  # fmt: skip


@compiled
def later(a: float, b: float) -> float:
    """The later of two times (one machine instruction, unlike ``max``, which minds what is no number)."""
    return a if a > b else b


@compiled
def tape(n: Counts, t: Times, number: int, row: int) -> Any:
    """The time of a phase: of the stage's, then consumer, copy, launch and step."""
    return t[n[TAPES] + number * n[ROWS] + row]


@compiled
def train(
    sync: bool, ready: float, ended: float, done: float, consumer: float, copy: float, launch: float, step: float
) -> tuple[float, float, float, float, float, float, float, float]:
    """One step of the trainer and the accelerator: the middle of the recurrence in the module's text."""
    pick = later(ready, done)
    consumed = pick + consumer
    begun = later(consumed, ended) if sync else consumed
    copied = begun + copy
    start = later(copied, ended)
    launched = copied + launch
    worked = start + step
    return pick, consumed, begun, copied, start, launched, worked, later(worked, launched)


@compiled
def turn(n: Counts, place: int, size: int) -> None:
    """Move on to the next place of a ring."""
    n[place] = n[place] + 1 if n[place] + 1 < n[size] else 0


@compiled
def walk(n: Counts, t: Times, steps: int, account: int) -> None:
    """Book whole steps into one account; all state in local variables, for speed."""
    phases, sync, free, picks, ends, weights = n[PHASES], n[SYNC] == 1, n[FREE], n[PICKS], n[ENDS], n[WEIGHTS]
    server, credit, last, row, tied = n[SERVER], n[CREDIT], n[LAST], n[ROW], n[TIED]
    servers, credits, ahead, rows, tapes = n[SERVERS], n[CREDITS], n[AHEAD], n[ROWS], n[TAPES]
    ready, ended, picked, blame = t[READY], t[ENDED], t[PICKED], account + QUEUE + 1
    busy = unlaunched = copying = consuming = 0.0
    starved = device = copies = consumers = launches = service = on_cores = outstanding = queue = 0.0
    for _ in range(steps):
        taken = later(t[Place(free + server)], t[Place(picks + credit)])
        done, before, at = taken, later(taken, ended), tapes + row
        queue += before - ended
        for phase in range(phases):
            time = t[Place(at)]
            at += rows
            done += time
            on_cores += time * t[Place(weights + phase)]
            until = later(done, ended)
            t[Place(blame + phase)] += until - before
            before = until
        consumer, launch, step = t[Place(at)], t[Place(at + 2 * rows)], t[Place(at + 3 * rows)]
        pick, consumed, begun, copied, start, launched, worked, end = train(
            sync, ready, ended, done, consumer, t[Place(at + rows)], launch, step
        )
        busy += step
        unlaunched += end - worked
        copying += start - later(consumed, ended)
        consuming += later(consumed, ended) - later(pick, ended)
        starved += pick - ready
        consumers += consumer
        copies += copied - begun
        launches += launch
        service += done - taken
        outstanding += pick - taken
        tied = (tied if pick == picked else 0) + (1 if pick == done else 0)
        t[Place(free + server)], t[Place(picks + credit)], t[Place(ends + last)] = done, pick, end
        server = server + 1 if server + 1 < servers else 0
        credit = credit + 1 if credit + 1 < credits else 0
        last = last + 1 if last + 1 < ahead else 0
        row = row + 1 if row + 1 < rows else 0
        ready = later(launched, t[Place(ends + last)])
        device += (begun - consumed) + (ready - launched)
        ended, picked = end, pick
    n[SERVER], n[CREDIT], n[LAST], n[ROW], n[TIED] = server, credit, last, row, tied
    n[ITEMS] += steps
    t[READY], t[ENDED], t[PICKED] = ready, ended, picked
    t[account + BUSY] += busy
    t[account + LAUNCH] += unlaunched
    t[account + COPY] += copying
    t[account + CONSUMER] += consuming
    t[account + T_STARVED] += starved
    t[account + T_DEVICE] += device
    t[account + T_COPY] += copies
    t[account + T_CONSUMER] += consumers
    t[account + T_LAUNCH] += launches
    t[account + SERVICE] += service
    t[account + ON_CORES] += on_cores
    t[account + OUTSTANDING] += outstanding
    t[account + QUEUE] += queue


@compiled
def book(n: Counts, t: Times, column: int, since: float, until: float, high: float) -> None:
    """Divide a piece of time among the accounts before the window and in it; what is later than ``high`` is dropped."""
    low = t[BEGIN]
    t[ACCOUNT + column] += min(until, low) - min(since, low)
    t[n[WINDOW] + column] += min(later(until, low), high) - min(later(since, low), high)


@compiled
def serve(n: Counts, t: Times, high: float) -> tuple[float, float]:
    """When the next batch is taken and done; its service, and what the accelerator is starved of if it idles."""
    taken = later(t[n[FREE] + n[SERVER]], t[n[PICKS] + n[CREDIT]])
    done, ended = taken, t[ENDED]
    book(n, t, QUEUE, ended, later(taken, ended), high)
    for phase in range(n[PHASES]):
        until = done + tape(n, t, phase, n[ROW])
        book(n, t, QUEUE + 1 + phase, later(done, ended), later(until, ended), high)
        if t[n[WEIGHTS] + phase] > 0:
            book(n, t, ON_CORES, done, until, high)
        done = until
    book(n, t, SERVICE, taken, done, high)
    n[ITEMS] += 1 if t[BEGIN] <= done < high else 0
    t[n[FREE] + n[SERVER]] = done
    return taken, done


@compiled
def use(n: Counts, t: Times, taken: float, done: float, high: float) -> None:
    """The batch's step: the trainer's pieces and the accelerator's."""
    ready, ended, phases, row = t[READY], t[ENDED], n[PHASES], n[ROW]
    consumer, launch, step = tape(n, t, phases, row), tape(n, t, phases + 2, row), tape(n, t, phases + 3, row)
    pick, consumed, begun, copied, start, launched, worked, end = train(
        n[SYNC] == 1, ready, ended, done, consumer, tape(n, t, phases + 1, row), launch, step
    )
    n[TIED] = (n[TIED] if pick == t[PICKED] else 0) + (1 if pick == done else 0)
    t[n[PICKS] + n[CREDIT]], t[n[ENDS] + n[LAST]] = pick, end
    turn(n, LAST, AHEAD)
    t[READY], t[ENDED], t[PICKED] = later(launched, t[n[ENDS] + n[LAST]]), end, pick
    book(n, t, OUTSTANDING, taken, pick, high)
    book(n, t, T_STARVED, ready, pick, high)
    book(n, t, T_CONSUMER, pick, consumed, high)
    book(n, t, T_DEVICE, consumed, begun, high)
    book(n, t, T_COPY, begun, copied, high)
    book(n, t, T_LAUNCH, copied, launched, high)
    book(n, t, T_DEVICE, launched, t[READY], high)
    book(n, t, CONSUMER, later(pick, ended), later(consumed, ended), high)
    book(n, t, COPY, later(consumed, ended), start, high)
    book(n, t, BUSY, start, worked, high)
    book(n, t, LAUNCH, worked, end, high)


@compiled
def clip(n: Counts, t: Times, steps: int, high: float) -> None:
    """Book steps near an edge of the window piece by piece, until no server takes anything before ``high``."""
    late = 0
    for _ in range(steps):
        taken, done = serve(n, t, high)
        use(n, t, taken, done, high)
        turn(n, SERVER, SERVERS)
        turn(n, CREDIT, CREDITS)
        turn(n, ROW, ROWS)
        late = late + 1 if taken >= high else 0
        if late == n[SERVERS]:
            break


@entry
def run(n: Counts, t: Times) -> int:
    """The whole run; 0. A batch done at an edge belongs to what follows, so ties with the last pick-up are counted."""
    warm_up, steps, edge = n[WARM_UP], n[STEPS], n[AHEAD] - 1 + n[CREDITS]
    walk(n, t, warm_up, ACCOUNT)
    t[BEGIN] = t[ENDED]
    n[ITEMS] = n[TIED] if t[PICKED] == t[BEGIN] else 0
    made = warm_up
    for block in range(n[BLOCKS]):
        stop = warm_up + (block + 1) * (steps - warm_up) // n[BLOCKS]
        whole = min(stop, max(made, warm_up + edge))
        clip(n, t, whole - made, math.inf)
        walk(n, t, stop - whole, n[WINDOW])
        made = stop
        t[n[BLOCK_END] + block] = t[ENDED]
        t[n[BLOCK_BUSY] + block] = t[n[WINDOW] + BUSY]
    t[END] = t[ENDED]
    n[ITEMS] -= n[TIED] if t[PICKED] == t[END] else 0
    clip(n, t, edge, t[END])
    return 0
