# SPDX-License-Identifier: MIT
"""The passport: what an artifact says of itself (ARCHITECTURE.md, "Passport")."""

import hashlib

import torch

import tessera
from tessera.model import E2Former
from tessera.model.embedding import CHARGE_RANGE, MULTIPLICITY_RANGE
from tessera_export.largest_step import LargestStep
from tessera_export.memory import MemoryModel

FORMAT = 1


def weights_sha256(model: E2Former) -> str:
    """Hash names, shapes, types and bytes of all weights, in the order of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def build_passport(
    model: E2Former,
    *,
    dtype: str,
    device: str,
    device_capability: str,
    matmul: str,
    num_messages: int,
    recompute: list[str],
    memory: MemoryModel,
    largest: LargestStep | None,
    kernels: str,
    tables: dict[str, object] | None,
) -> dict[str, object]:
    """Collect every key of ARCHITECTURE.md.

    Args:
        model: with the elements that the artifact will know.
        dtype: of the network.
        device: "cpu" or "cuda".
        device_capability: instruction set or SM that the compiled code needs.
        matmul: precision of float32 matrix products.
        num_messages: halo exchanges of one forward pass, counted in the traced graph.
        recompute: parts whose insides the backward pass computes anew (`recompute.Choice.labels`).
        memory: peak of one run.
        largest: upper bounds of the extents, None where there are none.
        kernels: of the attention stages, "fused" or "plain".
        tables: how fine the tables of edge networks are (`tables.Tables.to_dict`), None where the networks are exact.
    """
    config = model.config
    cutoffs = list(model.cutoffs)
    return {
        "format": FORMAT,
        "elements": list(model.elements),
        "cutoffs": cutoffs,
        "stages": [{"cutoff": stage.cutoff, "list": cutoffs.index(stage.cutoff)} for stage in config.all_stages],
        "dtype": dtype,
        "matmul": matmul,
        "device": device,
        "device_capability": device_capability,
        "torch_version": torch.__version__,
        "uses_charge": True,  # every E2Former V2 adds the system vector in each block
        "charge_range": list(CHARGE_RANGE),
        "multiplicity_range": list(MULTIPLICITY_RANGE),
        "reference_energies": model.reference_energies.tolist(),
        "energy_unit": "eV",
        "length_unit": "angstrom",
        "weights_sha256": weights_sha256(model),
        "num_layers": len(config.all_stages),
        "num_messages": num_messages,
        "recompute": recompute,
        "memory": memory.to_dict(),
        "largest_step": None if largest is None else largest.to_dict(),
        "kernels": kernels,
        "tables": tables,
        "channels": config.channels,
        "receptive_radius": config.receptive_radius,
        "model_config": config.to_dict(),
        "tessera_version": tessera.__version__,
    }
