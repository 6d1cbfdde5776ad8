"""The emulated device keeps the contract of a real one, in a host's time that moves only when it is told to."""

from __future__ import annotations

import mmap
import os
import resource
import sys
import threading
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from played_cuda import Cuda
from still import COPY, LAUNCH, SIZE, STEP, StillHost, still

from coresim.device import interface as module
from coresim.device.emulated import PINNED, Emulated, EmulatedDevice, open_device
from coresim.device.interface import CudaDevice, Device
from coresim.device.queues import DeviceHost, PinnedMemory, Queue, Work, shared_memory
from coresim.errors import InputError, MissingPartError

torch = pytest.importorskip("torch")


def batch() -> Any:
    return torch.ones(SIZE, dtype=torch.uint8)


def test_steps_are_done_in_order_in_the_devices_own_time() -> None:
    device, host = still()
    marks = [device.record()]
    for _ in range(3):
        device.launch(STEP, LAUNCH)
        marks.append(device.record())
    assert host.now == 3 * LAUNCH  # nothing was waited for
    assert [mark.end for mark in marks] == [0.0, STEP, 2 * STEP, 3 * STEP]
    device.synchronise(marks[1])
    assert host.now == STEP
    device.synchronise()
    assert [device.elapsed(a, b) for a, b in pairwise(marks)] == [STEP] * 3
    assert host.now == 3 * STEP


def test_a_step_bound_by_its_launch_ends_with_it() -> None:
    device, host = still()
    marks = [device.record()]
    for _ in range(2):
        device.launch(STEP, 1.1 * STEP)
        marks.append(device.record())
    device.synchronise()
    assert [device.elapsed(a, b) for a, b in pairwise(marks)] == pytest.approx([1.1 * STEP] * 2)
    assert host.now == pytest.approx(2.2 * STEP)


def test_a_late_launch_leaves_the_device_idle() -> None:
    device, host = still()
    device.launch(STEP, LAUNCH)
    device.synchronise()
    host.now += 1.0
    begin = device.record()
    device.launch(STEP, LAUNCH)
    end = device.record()
    device.synchronise()
    assert begin.end == STEP + 1.0 and device.elapsed(begin, end) == STEP


@pytest.mark.parametrize(("sync", "spent"), [("spin", STEP), ("block", LAUNCH)])
def test_waiting_spins_or_blocks(sync: str, spent: float) -> None:
    device, host = still(sync=sync)
    device.launch(STEP, LAUNCH)
    device.synchronise()
    assert host.now == STEP and host.spent == spent


def test_two_events_in_a_row_are_not_at_the_same_moment() -> None:
    device, _ = still(event=1e-6)
    start, end = device.record(), device.record()
    device.synchronise()
    assert device.elapsed(start, end) > 0


def test_what_is_not_reached_cannot_be_timed() -> None:
    device, _ = still()
    start = device.record()
    device.launch(STEP, LAUNCH)
    end = device.record()
    assert not device.query(end)
    with pytest.raises(ValueError, match="synchronise first"):
        device.elapsed(start, end)
    device.synchronise(end)
    assert device.query(start) and device.query(end)


def test_a_pinned_copy_waits_its_turn_and_nobody_waits_for_it() -> None:
    device, host = still()
    device.launch(STEP, LAUNCH)
    source = device.pin(batch())
    there = device.copy(source)
    assert host.now == LAUNCH and torch.equal(there, source) and device.copy(there) is there
    device.launch(STEP, LAUNCH)
    device.synchronise()
    assert host.now == 2 * STEP + COPY


def test_a_pageable_copy_is_made_behind_the_steps_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    device, host = still()
    device.launch(STEP, LAUNCH)
    staged: list[float] = []
    stage = device._pinned.copy_of
    monkeypatch.setattr(device._pinned, "copy_of", lambda tensor: (staged.append(host.now), stage(tensor))[1])
    device.copy(batch())
    assert staged == [STEP] and host.now == STEP + COPY


def test_a_copy_ahead_has_a_queue_of_its_own() -> None:
    device, host = still()
    device.launch(STEP, LAUNCH)
    device.copy(device.pin(batch()), ahead=True)
    assert host.now == LAUNCH + COPY  # beside the step, and waited for
    device.synchronise()
    assert host.now == STEP


def test_a_copy_of_nothing_is_a_copy_of_nothing() -> None:
    device, _ = still()
    assert device.copy(torch.zeros(0, 2)).shape == (0, 2)


def test_every_copy_goes_to_memory_that_the_device_keeps() -> None:
    device, _ = still()
    large, small = device.pin(batch()), device.pin(batch()[:1].to(torch.int64))
    places = [device._memory_for(source).data_ptr() for source in (large, small, large)]
    assert len(set(places)) == 1
    assert device._memory_for(small).dtype == small.dtype and device._memory_for(small).shape == small.shape
    grown = torch.ones(2 * large.numel())
    assert device._memory_for(grown).shape == grown.shape


def test_holding_and_decoding_take_the_device_alone() -> None:
    device, host = still(decode=0.125)
    device.hold(1.0)
    images = device.decoder(lambda place: pytest.fail("nothing is decoded here"))("files")
    device.synchronise()
    assert images == "files" and host.now == 1.125 and host.spent == 1.125


def test_a_copy_that_fails_does_not_hang_the_device() -> None:
    queue = Queue(StillHost())

    def broken() -> None:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError):
        queue.add(Work(0.0, 1.0, copies=broken))
    assert queue.last.known() == 1.0


# ---- on the real host ------------------------------------------------------------------------------------------


def test_on_the_real_host_the_device_keeps_its_own_time() -> None:
    device = EmulatedDevice(Emulated(step=0.01, launch=0.001, bus=1e8), torch.device("cpu"))
    source = device.pin(torch.arange(100_000, dtype=torch.float32))
    marks, found = [], []
    for _ in range(5):
        found.append(device.copy(source))
        device.launch(0.01, 0.001)
        marks.append(device.record())
    device.synchronise()
    taken = [device.elapsed(a, b) for a, b in pairwise(marks)]
    # The copy takes 4 ms of the bus at the least, the step 10 ms; a host that is late makes it later, never earlier.
    assert all(seconds >= 0.014 for seconds in taken)
    assert all(torch.equal(there, source) for there in found)
    assert all(mark.end <= time.perf_counter() for mark in marks)


def test_a_launch_takes_cpu_time_of_the_thread() -> None:
    began = time.thread_time()
    DeviceHost().work(0.01)
    assert time.thread_time() - began >= 0.01


@pytest.mark.parametrize(
    "busy", [lambda host: host.work(0.05), lambda host: host.wait(time.perf_counter() + 0.05, True)]
)
def test_work_and_a_wait_that_spins_keep_their_core(busy: Callable[[DeviceHost], None]) -> None:
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    busy(DeviceHost())
    # A thread that gives its core away by itself switches a hundred times or more.
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before <= 5


def test_other_threads_run_while_the_host_spins() -> None:
    usual, told, seen = sys.getswitchinterval(), threading.Event(), []

    def spin() -> None:
        host = DeviceHost()
        for _ in range(200_000):
            if told.is_set():
                seen.append(True)
                return
            host.spin()

    sys.setswitchinterval(60.0)  # nobody is made to let go of the interpreter's lock
    worker = threading.Thread(target=spin)
    try:
        worker.start()
        told.set()
    finally:
        sys.setswitchinterval(usual)
        worker.join()
    assert seen == [True]


def test_copies_are_made_by_another_thread() -> None:
    names: list[str] = []
    queue = Queue(DeviceHost())
    work = queue.add(Work(0.0, 1e-6, copies=lambda: names.append(threading.current_thread().name)))
    assert work.known() > 0 and names[0].startswith("emulated-device")


def test_torchs_own_thread_pins_for_it() -> None:
    from torch.utils.data import DataLoader

    device = EmulatedDevice(Emulated(), torch.device("cpu"))
    usual = torch.Tensor.pin_memory, torch.accelerator.is_available
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with device.loading():
            loader = DataLoader(list(torch.arange(8.0)), batch_size=2, num_workers=1, pin_memory=True)
            batches = iter(loader)
            pinned = [getattr(found, PINNED, False) for found in batches]
    assert pinned == [True] * 4
    assert (torch.Tensor.pin_memory, torch.accelerator.is_available) == usual


def test_pinned_memory_is_given_again_when_nobody_has_it_any_more() -> None:
    import torch

    memory = PinnedMemory()
    tensor = torch.arange(6.0).view(2, 3)
    first, second = memory.copy_of(tensor), memory.copy_of(tensor)
    place = first.data_ptr()
    assert torch.equal(first, tensor) and second.data_ptr() != place
    assert torch.equal(memory.copy_of(tensor.T), tensor.T)
    kept = first.detach()  # as the copy on the device, which shares its memory
    del first
    other = memory.copy_of(tensor).data_ptr()
    assert other != place
    del kept
    assert memory.copy_of(tensor).data_ptr() == other  # what was used last is given first
    both = memory.copy_of(tensor), memory.copy_of(tensor)
    assert [copy.data_ptr() for copy in both] == [other, place]
    del both
    # What this process has no fork writes to.
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        again = memory.copy_of(torch.zeros_like(tensor))
        os.write(writing, b"0" if bool((again == 0).all()) else b"1")
        os._exit(0)
    assert os.read(reading, 1) == b"0" and os.waitpid(child, 0)[1] == 0
    os.close(reading)
    os.close(writing)
    assert torch.equal(second, tensor)
    assert memory.copy_of(torch.tensor(3)).shape == () and memory.copy_of(torch.zeros(0, 2)).shape == (0, 2)


def test_a_fork_leaves_the_memory_of_a_device_as_it_is() -> None:
    """Private memory is copied page after page when it is written to while a fork has it too."""
    size, found = 1 << 22, []
    own = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    own.madvise(mmap.MADV_NOHUGEPAGE)
    for memory in (shared_memory(size), np.frombuffer(own, dtype=np.uint8)):
        memory.fill(1)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        memory.fill(2)
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)
    # The fork has the interpreter's own memory too, some pages of which are written to meanwhile.
    pages = size // mmap.PAGESIZE
    assert found[0] < pages / 2 < pages <= found[1]


# ---- opening a device ------------------------------------------------------------------------------------------


def test_what_is_said_of_an_emulated_device() -> None:
    usual, device = open_device("emulated"), open_device("emulated:step=30ms,launch=500us,bus=4e9,sync=block")
    assert isinstance(usual, EmulatedDevice) and isinstance(device, EmulatedDevice)
    assert usual.like == Emulated()
    assert device.like == Emulated(step=0.03, launch=0.0005, bus=4e9, sync="block")
    assert "emulated (step 0.03" in device.name()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("emulated:speed=1ms", "emulated.*speed: unknown key"), ("emulated:step=soon", "step"),
        ("emulated:bus=fast", "bytes per second are needed"), ("emulated:sync=sleep", "use one of spin, block"),
        ("emulated:step=0s", "above 0"), ("emulated:launch", "launch"),
    ],
)  # fmt: skip
def test_what_cannot_be_emulated_is_one_line(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_device(name)


def test_no_cuda_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MissingPartError, match=r"--gpu and --model.*--step-time"):
        open_device("cuda")


def test_devices_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name, words in (("cuda:2", "2 CUDA device"), ("gpu", "not a device"), ("meta", "cannot be measured")):
        with pytest.raises(InputError, match=words):
            open_device(name)
    assert type(open_device("cpu")) is Device


def test_the_host_as_its_own_device_is_never_behind() -> None:
    device = open_device("cpu")
    start = device.record()
    device.synchronise(start)
    assert device.elapsed(start, device.record()) >= 0 and not device.asynchronous
    assert device.copy(torch.ones(2)).sum() == 2 and device.pin(torch.ones(2)).sum() == 2
    assert device.name() == "cpu"


# ---- torch.cuda behind the same interface, played by the emulated device -----------------------------------------


def test_cuda_events_are_seconds_and_a_hold_is_calibrated_once() -> None:
    below, host = still()
    cuda = Cuda(below)
    device = CudaDevice(cuda, "cuda:0")
    device.hold(0.25)
    readings, start = cuda.synchronised, device.record()
    device.hold(0.5)
    end = device.record()
    assert cuda.synchronised == readings and end.mark.end > host.now
    assert not start.query() and not end.query()
    device.synchronise(end)
    assert end.query() and device.elapsed(start, end) == pytest.approx(0.5)
    device.synchronise()
    assert cuda.synchronised == readings + 1 and device.asynchronous


def test_cuda_without_a_number_is_the_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.cuda.set_device` refuses a device without a number, and so did everything that ran on ``cuda``."""
    torch = pytest.importorskip("torch")

    def set_device(place: Any) -> None:
        if place.index is None:
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{place}")
        chosen.append(place.index)

    chosen: list[int] = []
    for name, value in {"is_available": True, "device_count": 2, "current_device": 1}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setattr(torch.cuda, "set_device", set_device)
    assert open_device("cuda").place == torch.device("cuda:1")
    assert open_device("cuda:0").place == torch.device("cuda:0")
    assert chosen == [1, 0]


def test_a_hold_is_calibrated_at_the_clock_of_a_device_at_work() -> None:
    """An H200 that had rested began at 345 MHz: a hold of 50 ms, calibrated there and then, took 18 ms."""
    below, _ = still()
    cuda = Cuda(below)
    clock = [0.345e9] * 4 + [0.9e9] * 3 + [1.6e9]  # one at each reading, the last one from then on
    cuda._sleep = lambda cycles: below.hold(cycles / (clock.pop(0) if len(clock) > 1 else clock[0]))  # type: ignore[method-assign]
    device = CudaDevice(cuda, "cuda:0")
    device.hold(1e-3)
    start = device.record()
    device.hold(0.05)
    end = device.record()
    device.synchronise(end)
    assert device.elapsed(start, end) == pytest.approx(0.05)


def test_cuda_copies_ahead_on_a_stream_of_their_own() -> None:
    noted: list[Any] = []

    class Tensor:
        pinned = True

        def is_pinned(self) -> bool:
            return self.pinned

        def to(self, place: Any, non_blocking: bool = False) -> Tensor:
            noted.append((cuda.current, non_blocking))
            return self

        def record_stream(self, stream: Any) -> None:
            noted.append(("kept for", stream))

    cuda = Cuda(still()[0])
    device, tensor = CudaDevice(cuda, "cuda:0"), Tensor()
    device.copy(tensor, ahead=True)
    device.copy(tensor)
    tensor.pinned = False
    device.copy(tensor)
    assert noted == [("copies", False), ("kept for", "steps"), ("steps", True), ("steps", False)]


def test_batches_of_any_nesting() -> None:
    x = torch.zeros(2, 3)
    nested = {"a": [x, (x, "name")], "b": torch.return_types.max((x, x.long()))}
    assert module.batch_bytes(nested) == 24 * 3 + 48
    device, host = still(bus=24.0)
    moved = module.map_tensors(nested, device.copy)
    assert moved["a"][1][1] == "name" and host.now == 3 + 2
    assert module.batch_bytes(["no", "tensors"]) == 0
