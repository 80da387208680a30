# SPDX-License-Identifier: MIT
"""AdamW, learning rate, clipping, and the running average of the weights."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tessera.model import E2Former
from tessera.train.settings import OptimizerSettings


def learning_rate(step: int, progress: float, settings: OptimizerSettings) -> float:
    """Rise linearly over the warm-up, then fall along half a cosine to `final_fraction`.

    Args:
        step: updates so far.
        progress: done part of the run after its warm-up, 0 to 1.
        settings: of the run.
    """
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    low = settings.final_fraction
    return settings.learning_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))


class Optimizer:
    """Updates a model by gradients that are complete, and keeps the average of its weights.

    Args:
        model: updated in place.
        parameters: the trained ones, in the order of the gradients.
        settings: of the run.
        num_steps: of the whole run, for the schedule.

    Attributes:
        step: updates so far.
        averaged: copy of the model with averaged weights (the weights where `ema` is 0).
    """

    def __init__(
        self, model: E2Former, parameters: Sequence[nn.Parameter], settings: OptimizerSettings, num_steps: int
    ) -> None:
        self.step = 0
        self.averaged = copy.deepcopy(model).requires_grad_(requires_grad=False)
        self._model, self._parameters, self._settings, self._num_steps = model, list(parameters), settings, num_steps
        matrices = [parameter for parameter in parameters if parameter.ndim > 1]
        others = [parameter for parameter in parameters if parameter.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self._adam = torch.optim.AdamW([group for group in groups if group["params"]], lr=settings.learning_rate)

    def update(self, gradients: Sequence[Tensor], spent: float = 0.0) -> tuple[float, Tensor]:
        """Take one step; returns the learning rate and the gradients' length before clipping, without waiting for it.

        Args:
            gradients: of the trained parameters.
            spent: part of the run's time that is over, which leads the schedule where it is ahead of the steps.
        """
        warmup = self._settings.warmup_steps
        steps = (self.step - warmup) / max(self._num_steps - warmup, 1)
        rate = learning_rate(self.step, max(steps, spent), self._settings)
        for group in self._adam.param_groups:
            group["lr"] = rate
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient.clone()  # clipping works in place
        length = nn.utils.clip_grad_norm_(self._parameters, self._settings.clip or math.inf)
        self._adam.step()
        self._adam.zero_grad()
        self.step += 1
        self._average()
        return rate, length

    def _average(self) -> None:
        # Early averages are short, so that the random start is forgotten.
        decay = min(self._settings.ema, self.step / (9.0 + self.step)) if self._settings.ema else 0.0
        with torch.no_grad():
            for average, value in zip(self.averaged.parameters(), self._model.parameters(), strict=True):
                average.lerp_(value, 1.0 - decay)

    def state(self) -> dict[str, Any]:
        """Return all that a later run needs to go on alike."""
        return {
            "step": self.step,
            "model": self._model.state_dict(),
            "averaged": self.averaged.state_dict(),
            "adam": self._adam.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state`."""
        self.step = int(state["step"])
        self._model.load_state_dict(state["model"])
        self.averaged.load_state_dict(state["averaged"])
        self._adam.load_state_dict(state["adam"])
