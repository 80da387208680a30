# SPDX-License-Identifier: MIT
"""The training step recorded as CUDA graphs and replayed: thousands of small kernels start without the host."""

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tessera.train.packs import Extents, Pack
from tessera.train.step import Step

GROWTH = 1.15
"""From one set of extents to the next: a recording each, and so much padding at most beyond what one batch needs."""
WARM_UPS = 2
"""Steps that run before a recording, in which libraries set themselves up."""


@dataclasses.dataclass(frozen=True)
class Ladder:
    """Few sets of extents for all packs of a run: `lowest` times powers of GROWTH, all extents together."""

    lowest: Extents

    def __call__(self, needed: Extents) -> Extents:
        """Return the smallest set that holds `needed`."""
        ratios = [needed.rows / self.lowest.rows, needed.frames / self.lowest.frames]
        ratios += [own / low for own, low in zip(needed.edges, self.lowest.edges, strict=True)]
        level = max(0, math.ceil(math.log(max(ratios)) / math.log(GROWTH) - 1e-9))

        def grown(low: int, own: int) -> int:
            return max(math.ceil(low * GROWTH**level), own)

        return Extents(
            grown(self.lowest.rows, needed.rows),
            grown(self.lowest.frames, needed.frames),
            tuple(grown(low, own) for low, own in zip(self.lowest.edges, needed.edges, strict=True)),
        )


@dataclasses.dataclass(frozen=True)
class Recording:
    """One graph with the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class RecordedStep:
    """A step, recorded once for each set of extents that packs come in.

    A call copies the pack into the recording's inputs and replays it, all on the current stream and without waiting.
    Its results are overwritten by the next call. Recordings share one pool of memory.

    Args:
        step: eager or compiled, of a model on a GPU.
        device: that GPU.
    """

    def __init__(self, step: Step, device: torch.device) -> None:
        self._step, self._device = step, device
        self._stream = torch.cuda.Stream(self._device)
        self._pool = torch.cuda.graph_pool_handle()
        self._recordings: dict[tuple[torch.Size, ...], Recording] = {}

    def __call__(self, pack: Pack) -> tuple[Tensor, ...]:
        """Pack, in page-locked memory or on the GPU, to (three terms, gradient of each trained parameter)."""
        values = pack.flat()
        extents = tuple(one.shape for one in values)
        if extents not in self._recordings:
            self._recordings[extents] = self._record(values)
        recording = self._recordings[extents]
        for held, one in zip(recording.inputs, values, strict=True):
            held.copy_(one, non_blocking=True)
        recording.graph.replay()
        return recording.outputs

    @property
    def num_recordings(self) -> int:
        """Sets of extents so far."""
        return len(self._recordings)

    def _record(self, values: Sequence[Tensor]) -> Recording:
        inputs = tuple(one.to(self._device, copy=True) for one in values)
        pack = Pack.unflat(inputs)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                self._step(pack)
        graph = torch.cuda.CUDAGraph()
        # Threads that lay other batches out lock pages meanwhile, which a stricter mode would refuse.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            outputs = self._step(pack)
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        return Recording(graph, inputs, outputs)
