# SPDX-License-Identifier: MIT
"""The training step, eager or compiled.

torch.compile does not differentiate twice. So the whole step, forces by a first backward pass and gradients of the
loss by a second one, is recorded with `make_fx` as one graph of plain operations, in which nothing is left to
differentiate. That graph goes to Inductor as it is: torch.compile would first interpret its thousands of nodes again.
"""

import logging
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch._inductor import standalone_compile
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from tessera.model import E2Former
from tessera.train.errors import TrainError
from tessera.train.loss import loss_and_gradients
from tessera.train.packs import Pack
from tessera.train.settings import LossSettings

logger = logging.getLogger(__name__)
Step = Callable[[Pack], tuple[Tensor, ...]]
"""Pack to (three terms, gradient of each trained parameter); see :func:`tessera.train.loss.loss_and_gradients`."""

AGREEMENT = {torch.float32: 2e-3, torch.float64: 1e-8}
"""Largest difference of compiled and eager gradients, relative to the longest gradient: roundings of sums in another
order, seen twice through a derivative. A miscompiled step is off by order 1."""


TIMED_STEPS = 5


def eager_step(model: E2Former, parameters: Sequence[Tensor], loss: LossSettings) -> Step:
    """Return the step as torch runs it line by line."""
    return lambda pack: loss_and_gradients(model, parameters, pack, loss)


class CompiledStep:
    """The step compiled by Inductor, once for each set of extents that packs come in.

    Extents are constants of the compiled code: with free ones, a model of 16 channels did not
    compile within four minutes, with constants one of 32 channels and three stages takes two (one core).

    Args:
        model: of the run; parameters are read where they are.
        parameters: the trained ones.
        loss: of the run.
    """

    def __init__(self, model: E2Former, parameters: Sequence[Tensor], loss: LossSettings) -> None:
        self._model, self._parameters, self._loss = model, list(parameters), loss
        self._compiled: dict[tuple[torch.Size, ...], Callable[..., Sequence[Tensor]]] = {}

    def __call__(self, pack: Pack) -> tuple[Tensor, ...]:
        """Pack to (three terms, gradient of each trained parameter); the compiler runs for extents not met before."""
        values = pack.flat()
        extents = tuple(one.shape for one in values)
        if extents not in self._compiled:
            self._compiled[extents] = self._compile(pack)
        with torch.no_grad():
            return tuple(self._compiled[extents](*self._parameters, *values))

    def _compile(self, pack: Pack) -> Callable[..., Sequence[Tensor]]:
        started = time.perf_counter()
        module = trace_step(self._model, self._parameters, self._loss, pack)
        values = [one.detach() for one in self._parameters]
        with torch.no_grad():
            compiled = standalone_compile(module, [*values, *pack.flat()], dynamic_shapes="from_graph")
        logger.info(
            "compiled the step for %d rows and %d edges in %.0f s", len(pack.graph.element),
            max(len(one.receiver) for one in pack.graph.lists), time.perf_counter() - started,
        )  # fmt: skip
        return compiled


class _Loss(nn.Module):
    """Makes the parameters of a model arguments, by `torch.func.functional_call`."""

    def __init__(self, model: E2Former, loss: LossSettings) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, parameters: Sequence[Tensor], pack: Pack) -> tuple[Tensor, ...]:
        """See :func:`tessera.train.loss.loss_and_gradients`."""
        return loss_and_gradients(self.model, parameters, pack, self.loss)


def trace_step(model: E2Former, parameters: Sequence[Tensor], loss: LossSettings, pack: Pack) -> torch.fx.GraphModule:
    """Record the step, both backward passes included, as a graph over the trained parameters, then a pack's tensors.

    It holds for every pack of these extents. Frozen parameters are constants.
    """
    names = {id(values): f"model.{name}" for name, values in model.named_parameters()}

    def step(*tensors: Tensor) -> tuple[Tensor, ...]:
        trained = [one.detach().requires_grad_() for one in tensors[: len(parameters)]]
        replaced = {names[id(own)]: one for own, one in zip(parameters, trained, strict=True)}
        own_pack = Pack.unflat(tensors[len(parameters) :])
        return functional_call(_Loss(model, loss), replaced, (trained, own_pack))

    recorded = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)
    return recorded(*(one.detach() for one in parameters), *pack.flat())


def seconds_of(step: Step, pack: Pack) -> float:
    """Time a step that ran before: the median of TIMED_STEPS."""
    spent = []
    for _ in range(TIMED_STEPS):
        started = time.perf_counter()
        float(step(pack)[0].sum())  # waits for a GPU
        spent.append(time.perf_counter() - started)
    return sorted(spent)[TIMED_STEPS // 2]


def check_agreement(compiled: Step, eager: Step, pack: Pack, dtype: torch.dtype) -> float:
    """Compare both steps on one pack; returns the largest difference relative to the longest gradient.

    Raises:
        TrainError: they disagree.
    """
    found, expected = compiled(pack), eager(pack)
    scale = max(float(gradient.abs().max()) for gradient in expected[1:])
    worst = max(float((a - b).abs().max()) for a, b in zip(found[1:], expected[1:], strict=True))
    terms = float((found[0] - expected[0]).abs().max() / expected[0].abs().max().clamp(min=1e-30))
    difference = max(worst / max(scale, 1e-30), terms)
    if not difference <= AGREEMENT[dtype]:
        raise TrainError(
            f"expected the compiled step to equal the eager one to {AGREEMENT[dtype]:g}, found a relative "
            f"difference of {difference:.2e}; train with compile: false and report this with torch {torch.__version__}"
        )
    return difference
