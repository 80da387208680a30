# SPDX-License-Identifier: MIT
"""Frames of a run: what is trained on, what is held out, neighbors, order."""

import dataclasses
import logging
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import repeat

import numpy as np
from tqdm import tqdm

from tessera.model.elements import ATOMIC_NUMBERS, SYMBOLS
from tessera.train.edges import FrameEdges, find_edges
from tessera.train.errors import TrainError
from tessera.train.frames import Frame, read_frames
from tessera.train.settings import TrainSettings

logger = logging.getLogger(__name__)
FRAMES_WORTH_WORKERS, MOST_WORKERS = 1000, 16
"""A process takes seconds to start, the neighbors of a thousand frames take ten."""
_HELD_OUT = ("val", "valid", "validation")


@dataclasses.dataclass
class Dataset:
    """Frames and, once found, their edges, in the same order."""

    training: list[Frame]
    validation: list[Frame]
    training_edges: list[FrameEdges] = dataclasses.field(default_factory=list)
    validation_edges: list[FrameEdges] = dataclasses.field(default_factory=list)
    cutoff: float = 0.0
    """Å, within which the edges were found."""

    @property
    def elements(self) -> list[str]:
        """Symbols of all frames, by atomic number."""
        numbers = {int(number) for frame in (*self.training, *self.validation) for number in frame.numbers}
        unknown = sorted(numbers - {ATOMIC_NUMBERS[symbol] for symbol in SYMBOLS[1:]})
        if unknown:
            raise TrainError(f"expected elements from H to Fm, found atomic numbers {unknown}; correct the files")
        return [SYMBOLS[number] for number in sorted(numbers)]

    def find_neighbors(self, cutoff: float, *, quiet: bool) -> None:
        """Find the edges within `cutoff` (Å) of all frames, unless they are there; they are kept for the whole run."""
        if self.cutoff == cutoff:
            return
        frames = [*self.training, *self.validation]
        found = _find_all(frames, cutoff, quiet=quiet)
        self.training_edges, self.validation_edges = found[: len(self.training)], found[len(self.training) :]
        self.cutoff = cutoff
        logger.info(
            "%d edges within %g Å, %.1f MiB", sum(len(one.receiver) for one in found), cutoff,
            sum(one.nbytes for one in found) / 2**20,
        )  # fmt: skip


def _find_all(frames: list[Frame], cutoff: float, *, quiet: bool) -> list[FrameEdges]:
    """Search frame by frame, in several processes where there are many frames and cores."""
    bar = partial(tqdm, desc="neighbors", unit="frame", total=len(frames), disable=quiet)
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    workers = min(len(os.sched_getaffinity(0)) // 2 // ranks, MOST_WORKERS)
    if len(frames) < FRAMES_WORTH_WORKERS or workers < 2:
        return list(bar(find_edges(frame, cutoff) for frame in frames))
    # Fresh processes: a copy of one that uses a GPU must not be.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(bar(pool.map(find_edges, frames, repeat(cutoff), chunksize=32)))


def read_dataset(settings: TrainSettings) -> Dataset:
    """Read the files and hold out what the config says.

    Raises:
        TrainError: no frame is left to train on.
    """
    data = settings.data
    frames = read_frames([settings.path(name) for name in data.files], data)
    held_out = np.array([frame.split in _HELD_OUT for frame in frames], dtype=bool)
    if data.split_key is not None and not held_out.any():
        found = sorted({str(frame.split) for frame in frames})
        raise TrainError(
            f"data.split_key: expected frames with {data.split_key}=val, found {', '.join(found)}; correct the key"
        )
    if data.validation_fraction:
        free = np.flatnonzero(~held_out)
        count = round(data.validation_fraction * len(free))
        held_out[np.random.default_rng([settings.seed, 0]).choice(free, count, replace=False)] = True
    training = [frame for frame, out in zip(frames, held_out, strict=True) if not out]
    validation = [frame for frame, out in zip(frames, held_out, strict=True) if out]
    validation += read_frames([settings.path(name) for name in data.validation_files], data)
    if not training:
        raise TrainError(f"expected frames to train on, found all {len(frames)} held out; lower validation_fraction")
    return Dataset(training, validation)


def batches(num_frames: int, batch_size: int, seed: int, epoch: int) -> list[Sequence[int]]:
    """Return the batches of an epoch: a function of seed and epoch alone, so that a resumed run goes on alike."""
    order = np.random.default_rng([seed, 1 + epoch]).permutation(num_frames).tolist()
    return [order[start : start + batch_size] for start in range(0, num_frames, batch_size)]


def batches_of_edges(edges: np.ndarray, batch_edges: int, seed: int, epoch: int) -> list[Sequence[int]]:
    """Return batches of about equal numbers of edges, as many in every epoch: time and memory of a step follow edges.

    Args:
        edges: int64 [frames], edges of each frame.
        batch_edges: edges wanted in a batch.
        seed: of the run.
        epoch: from 0.

    Raises:
        TrainError: a frame has more edges than a batch.
    """
    count = max(1, int(edges.sum()) // batch_edges)
    width = edges.sum() / count
    if edges.max() > width:
        raise TrainError(
            f"optimizer.batch_edges: expected room for the largest frame, which has {edges.max()} edges, found "
            f"{batch_edges}; raise it"
        )
    order = np.random.default_rng([seed, 1 + epoch]).permutation(len(edges))
    middle = np.cumsum(edges[order]) - 0.5 * edges[order]
    place = np.minimum((middle / width).astype(np.int64), count - 1)  # no batch is skipped: frames are narrower
    return [order[place == one].tolist() for one in range(count)]
