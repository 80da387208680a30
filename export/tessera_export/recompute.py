# SPDX-License-Identifier: MIT
"""Choose what the backward pass computes anew, so that a run fits a budget of memory an atom."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

from torch import fx

from tessera.model import E2Former
from tessera_export.errors import ExportError
from tessera_export.memory import WATER_DENSITY, MemoryModel, memory_model
from tessera_export.trace import trace_step

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """A traced step, what it recomputes (times by part of the model), and its memory; `cutoffs` in Å, one a list."""

    module: fx.GraphModule
    times: Mapping[str, int]
    memory: MemoryModel
    cutoffs: tuple[float, ...]

    @property
    def per_atom(self) -> float:
        """MiB an atom of water."""
        return self.memory.per_atom(self.cutoffs)

    @property
    def labels(self) -> list[str]:
        """The parts that are recomputed, as the passport spells them: "stage 0", "stage 3 twice"."""
        return [f"{name} twice" if times == 2 else name for name, times in self.times.items() if times > 0]


def ladder(model: E2Former) -> Iterator[dict[str, int]]:
    """Give the choices in the order in which they are tried, each adding one part to the one before.

    First each part once, in the order in which they run, since the first to run keeps its insides longest; not the
    last, whose backward pass follows its forward pass. Then the stages twice, those of the longest cutoff first: their
    own backward pass is the worst moment by then. An embedding with a table keeps nothing and takes no part.
    """
    times: dict[str, int] = {}
    yield dict(times)
    parts = {name: part for name, part in model.parts.items() if part.most_recomputed > 0}
    *held, _ = parts
    for name in held:
        times[name] = 1
        yield dict(times)
    cutoffs = {f"stage {index}": stage.cutoff for index, stage in enumerate(model.config.all_stages)}
    twice = [name for name, part in parts.items() if part.most_recomputed == 2]
    for name in sorted(twice, key=lambda name: cutoffs[name], reverse=True):
        times[name] = 2
        yield {part: times[part] for part in model.parts if part in times}


def choose(model: E2Former, kernels: ModuleType, budget: float | None) -> Choice:
    """Trace `model` so that a run stays within `budget`, recomputing as little as possible.

    Args:
        model: left with the chosen setting (`E2Former.set_recomputed`).
        kernels: as in `trace.trace_step`.
        budget: MiB an atom of water on one rank, without the weights; None recomputes nothing.

    Raises:
        ExportError: no choice stays within the budget; names the least that is possible.
    """
    tried: dict[str, float] = {}  # the traces themselves hold copies of the weights
    for times in ladder(model):
        model.set_recomputed(times)
        module = trace_step(model, kernels)
        choice = Choice(module, times, memory_model(module, model.cutoffs), model.cutoffs)
        if budget is None:
            return choice
        parts = ", ".join(choice.labels) or "nothing"
        tried[parts] = choice.per_atom
        logger.info("%8.3f MiB an atom, recomputed: %s", choice.per_atom, parts)
        if choice.per_atom <= budget:
            return choice
    parts, least = min(tried.items(), key=lambda item: item[1])
    raise ExportError(
        f"--recompute {budget:g}: expected a budget of at least {least:.3f} MiB an atom (water, {WATER_DENSITY:g} "
        f"atoms/Å^3), which recomputing {parts} needs, found {budget:g}; raise it, or spread the system over more GPUs"
    )
