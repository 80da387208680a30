# SPDX-License-Identifier: MIT
"""Files that a run leaves: models in the public layout and states to resume from, never half written."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from tessera.checkpoint_keys import public_slots
from tessera.model import E2Former
from tessera.model.elements import ATOMIC_NUMBERS, SYMBOLS


def write_atomically(path: Path, contents: Any) -> None:
    """`torch.save` beside the file, then rename: a reader sees the old file or the new one."""
    partial = path.with_name(f"{path.name}.part")
    with partial.open("wb") as file:
        torch.save(contents, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def write_model(folder: Path, model: E2Former, mapping: Mapping[str, Any]) -> None:
    """Write model.pt and config.yaml in the public layout, as `tessera.load_checkpoint` and `tessera-export` read them.

    Args:
        folder: where.
        model: its parameters keep their dtype.
        mapping: the flattened config.yaml that describes it, with `head_name`.
    """
    energies = dict(zip(model.elements, model.reference_energies.tolist(), strict=True))
    config = {**mapping, "elements": list(model.elements), "reference_energies": energies}
    text = folder / "config.yaml.part"
    text.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    text.replace(folder / "config.yaml")
    state = public_state(model, str(mapping["head_name"]))
    contents = {"model": state, "elements": list(model.elements), "reference_energies": energies}
    write_atomically(folder / "model.pt", contents)


def public_state(model: E2Former, head: str) -> dict[str, Tensor]:
    """Return the parameters under their public names and shapes; inverse of `tessera.checkpoint.load_state`."""
    parameters = {name: parameter.detach().cpu() for name, parameter in model.named_parameters()}
    rows = torch.tensor([ATOMIC_NUMBERS[symbol] for symbol in model.elements])
    state = {}
    for key, slot in public_slots(model, head).items():
        values = parameters[slot.name] if slot.network is None else parameters[slot.name][slot.network]
        if slot.has_atomic_number_rows:
            table = values.new_zeros(len(SYMBOLS), values.shape[1])
            table[rows] = values
            values = table
        state[key] = values.reshape(slot.public_shape or values.shape).clone()
    return state
