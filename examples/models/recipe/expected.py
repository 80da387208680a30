# SPDX-License-Identifier: MIT
"""Write what a model says of the three frames in expected.npz, in float64, for the test of the bundled model.

python expected.py ../tessera-demo.pt --frames ../expected.npz --output expected.npz

Frames and the teacher's labels stay; energies (without references), forces and dE/dstrain are those of the model.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from tessera.checkpoint import load_checkpoint
from tessera.model import E2Former, build_graph, energy_and_edge_gradients, forces_and_strain

CASES = 3


def predict(model: E2Former, case: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return energy, per_atom_energy [N], reference_energy_sum and dE_dstrain [3, 3] in eV, forces [N, 3] in eV/Å."""
    graph = build_graph(
        model, case["Z"], case["positions"], case["cell"], case["pbc"],
        charge=int(case["charge"]), multiplicity=int(case["multiplicity"]),
    )  # fmt: skip
    energy, gradients = energy_and_edge_gradients(model, graph)
    forces, strain = forces_and_strain(graph, gradients)
    references = model.reference_energies[graph.element]
    own = (energy - references).numpy()
    return {
        "energy": own.sum(), "per_atom_energy": own, "forces": forces.numpy(), "dE_dstrain": strain.numpy(),
        "reference_energy_sum": references.sum().numpy(),
    }  # fmt: skip


def main() -> None:
    """Read the frames, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="checkpoint beside its config.yaml")
    parser.add_argument("--frames", type=Path, default=Path(__file__).resolve().parent.parent / "expected.npz")
    parser.add_argument("--output", type=Path, default=Path("expected.npz"))
    arguments = parser.parse_args()
    model = load_checkpoint(arguments.model).to(torch.float64)
    with np.load(arguments.frames) as stored:
        contents = dict(stored)
    for place in range(CASES):
        name = f"case{place}_"
        case = {key.removeprefix(name): values for key, values in contents.items() if key.startswith(name)}
        contents |= {f"{name}{key}": values for key, values in predict(model, case).items()}
    np.savez_compressed(arguments.output, **contents)


if __name__ == "__main__":
    main()
