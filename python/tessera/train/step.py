# SPDX-License-Identifier: MIT
"""The training step, eager or compiled.

torch.compile does not differentiate twice. So the whole step, forces by a first backward pass and gradients of the
loss by a second one, is recorded with `make_fx` as one graph of plain operations, in which nothing is left to
differentiate. That graph goes to Inductor as it is: torch.compile would first interpret its thousands of nodes again.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch._inductor import standalone_compile
from torch.func import functional_call
from torch.fx.experimental import _config as shape_config
from torch.fx.experimental.proxy_tensor import make_fx

from tessera.model import E2Former
from tessera.model.elements import ATOMIC_NUMBERS
from tessera.train.edges import find_edges
from tessera.train.errors import TrainError
from tessera.train.frames import Frame
from tessera.train.loss import loss_and_gradients
from tessera.train.packs import Counts, Pack, make_pack
from tessera.train.settings import LossSettings

Step = Callable[[Pack], tuple[Tensor, ...]]
"""Pack to (three terms, gradient of each trained parameter); see :func:`tessera.train.loss.loss_and_gradients`."""

AGREEMENT = {torch.float32: 2e-3, torch.float64: 1e-8}
"""Largest difference of compiled and eager gradients, relative to the longest gradient: roundings of sums in another
order, seen twice through a derivative. A miscompiled step is off by order 1."""


TIMED_STEPS = 5


def eager_step(model: E2Former, parameters: Sequence[Tensor], loss: LossSettings) -> Step:
    """Return the step as torch runs it line by line."""
    return lambda pack: loss_and_gradients(model, parameters, pack, loss)


def compiled_step(model: E2Former, parameters: Sequence[Tensor], loss: LossSettings) -> Step:
    """Return the compiled step, which reads the trained parameters where they are; the compiler runs now.

    Extents are free: batches of other sizes do not compile again.
    """
    module = trace_step(model, parameters, loss)
    with torch.no_grad(), shape_config.patch(use_duck_shape=False):
        compiled = standalone_compile(module, [*parameters, *example_pack(model).flat()], dynamic_shapes="from_graph")

    def step(pack: Pack) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return tuple(compiled(*parameters, *pack.flat()))

    return step


class _Loss(nn.Module):
    """Makes the parameters of a model arguments, by `torch.func.functional_call`."""

    def __init__(self, model: E2Former, loss: LossSettings) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, parameters: Sequence[Tensor], pack: Pack) -> tuple[Tensor, ...]:
        """See :func:`tessera.train.loss.loss_and_gradients`."""
        return loss_and_gradients(self.model, parameters, pack, self.loss)


def trace_step(model: E2Former, parameters: Sequence[Tensor], loss: LossSettings) -> torch.fx.GraphModule:
    """Record the step, both backward passes included, as a graph over the trained parameters, then a pack's tensors.

    Equal extents of the example are chance, so each has a symbol of its own. Frozen parameters are constants.
    """
    names = {id(values): f"model.{name}" for name, values in model.named_parameters()}

    def step(*tensors: Tensor) -> tuple[Tensor, ...]:
        trained = [one.detach().requires_grad_() for one in tensors[: len(parameters)]]
        replaced = {names[id(own)]: one for own, one in zip(parameters, trained, strict=True)}
        pack = Pack.unflat(tensors[len(parameters) :])
        return functional_call(_Loss(model, loss), replaced, (trained, pack))

    values = [one.detach() for one in parameters]
    with shape_config.patch(use_duck_shape=False):
        recorded = make_fx(step, tracing_mode="symbolic", _allow_non_fake_inputs=True)
        return recorded(*values, *example_pack(model).flat())


def seconds_of(step: Step, pack: Pack) -> float:
    """Time a step that ran before: the median of TIMED_STEPS."""
    spent = []
    for _ in range(TIMED_STEPS):
        started = time.perf_counter()
        float(step(pack)[0].sum())  # waits for a GPU
        spent.append(time.perf_counter() - started)
    return sorted(spent)[TIMED_STEPS // 2]


def example_pack(model: E2Former) -> Pack:
    """Make two clusters of seven atoms: their extents become symbols, so only ranks and dtypes matter to the trace."""
    positions = 0.9 * min(model.cutoffs) * np.random.default_rng(1).random((7, 3))
    frame = Frame(
        "example", np.full(7, ATOMIC_NUMBERS[model.elements[0]]), positions, np.eye(3), (False, False, False), 0, 1,
        0.0, np.zeros_like(positions), None, None,
    )  # fmt: skip
    edges = find_edges(frame, max(model.cutoffs))
    device = model.reference_energies.device
    return make_pack(model, [frame] * 2, [edges] * 2, Counts.of([frame] * 2)).to(device)


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
