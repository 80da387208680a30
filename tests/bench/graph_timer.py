# SPDX-License-Identifier: MIT
"""Time calls on a GPU without the host's share: several calls in one captured graph, which is replayed."""

import math
import statistics
import time
from collections.abc import Callable

import torch

WARM_UP, REPEATS = 3, 11
#: ms that a graph lasts at least, so that its own start (some 10 µs) is below a hundredth.
LONG_ENOUGH = 4.0
MOST_CALLS = 50


def time_ms(call: Callable[[], object], *, is_captured: bool = True) -> float:
    """Return the median time of a call on the GPU, ms.

    Args:
        call: enqueues the same kernels each time; captured, it must not wait for the device.
        is_captured: False times eager calls one by one, with what the GPU waits for the host: for calls that cannot be
            captured.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            call()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
    eager = 1e3 * (time.perf_counter() - start)
    if not is_captured:
        return _median(call)
    count = (
        min(MOST_CALLS, math.ceil(LONG_ENOUGH / _captured(call, 1, stream, repeats=3))) if eager < LONG_ENOUGH else 1
    )
    return _captured(call, count, stream, REPEATS)


def _captured(call: Callable[[], object], count: int, stream: torch.cuda.Stream, repeats: int) -> float:
    """Median ms of one of `count` calls in a graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(count):
            call()
    graph.replay()
    return _median(graph.replay, repeats) / count


def _median(call: Callable[[], object], repeats: int = REPEATS) -> float:
    times = []
    for _ in range(repeats):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)
