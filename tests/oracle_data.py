# SPDX-License-Identifier: MIT
"""Where the oracle cases lie and how one becomes a model and a graph."""

import functools
import json
import os
from pathlib import Path

import numpy as np
import torch

from tessera.checkpoint import load_state
from tessera.model import E2Former, Graph, ModelConfig, build_graph

ROOT = Path(__file__).resolve().parents[1]
BUNDLED = ROOT / "tests" / "data" / "oracle"


def oracle_folder() -> Path:
    """The whole set where there is one, else the part that the project carries."""
    candidates = [os.environ.get("TESSERA_ORACLE"), ROOT.parent / "shared" / "oracle"]
    return next((Path(folder) for folder in candidates if folder and Path(folder).is_dir()), BUNDLED)


ORACLE = oracle_folder()
CASES = sorted(path.stem.removeprefix("case_") for path in ORACLE.glob("case_*.npz"))
FEATURE_CASES = sorted(path.stem.removeprefix("features_") for path in ORACLE.glob("features_*.npz"))


@functools.cache
def oracle_state(name: str) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    stored = np.load(ORACLE / f"weights_{name}.npz")
    config = ModelConfig.from_yaml({"backbone_config": json.loads(str(stored["__config__"]))})
    return config, {key: torch.from_numpy(stored[key]) for key in stored.files if key != "__config__"}


@functools.cache
def oracle_model(name: str, dtype: torch.dtype) -> E2Former:
    config, state = oracle_state(name)
    return load_state(state, config, elements=("H", "C", "N", "O", "Na", "P", "S", "Cl", "K", "Br")).to(dtype)


def oracle_case(name: str) -> dict[str, np.ndarray]:
    stored = np.load(ORACLE / f"case_{name}.npz")
    return {key: stored[key] for key in stored.files}


def case_graph(model: E2Former, case: dict[str, np.ndarray]) -> Graph:
    return build_graph(
        model,
        case["Z"],
        case["positions"],
        case.get("cell"),
        case.get("pbc", np.zeros(3)),
        charge=int(case["charge"]),
        multiplicity=int(case["multiplicity"]),
    )
