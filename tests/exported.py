# SPDX-License-Identifier: MIT
"""Artifacts for all test folders: each configuration is exported once, and found again by the next run.

Use the fixture `artifact`: `artifact("demo", "float64")` is the path of a verified `.pt2`. The environment variable
TESSERA_TEST_ARTIFACTS names the folder to keep them in; without it they live in the temporary folder of this user.
"""

import getpass
import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch

from tessera.checkpoint import load_checkpoint
from tessera.model import E2Former, ModelConfig, Stage
from tessera.model.config import RepulsionRange
from tessera_export.pipeline import ExportOptions, export_model
from tessera_export.progress import Progress

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "examples" / "models"

#: Sources that decide what an artifact computes and how it is packed.
SOURCES = (
    "python/tessera/model",
    "python/tessera/kernels",
    "python/tessera/ops",
    "python/tessera/checkpoint.py",
    "export/tessera_export",
)

#: Models small enough to compile in seconds; their weights are random (seeded). "first" has first-order attention on
#: two cutoffs and a reference energy; "tiny" is one zero-order stage, "repelled" the same with a repulsion of nuclei.
SMALL_CONFIGS = {
    "first": ModelConfig(
        lmax=2,
        channels=16,
        num_heads=8,
        head_scalars=4,
        num_basis=16,
        out_channels=16,
        embedding_cutoff=3.5,
        stages=(Stage(3.5, "so2-first-order", 3.5), Stage(4.5, "so2-first-order", 4.5)),
        reference_energies={"H": -13.6, "C": -1029.0, "O": -2041.0},
    ),
    "tiny": ModelConfig(
        lmax=1,
        channels=8,
        num_heads=4,
        head_scalars=2,
        num_basis=8,
        out_channels=8,
        embedding_cutoff=3.0,
        stages=(Stage(3.0, "zero-order", 3.0),),
    ),
}
SMALL_CONFIGS["repelled"] = replace(SMALL_CONFIGS["tiny"], repulsion=RepulsionRange())
SMALL_ELEMENTS = ("H", "C", "O")
SEED = 7


@cache
def sources_hash() -> str:
    digest = hashlib.sha256(torch.__version__.encode())
    for name in SOURCES:
        path = ROOT / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.relative_to(ROOT).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Request:
    """What to export: a configuration's name, the network dtype, the elements to keep (all if empty), the device.

    `recompute` is a budget, MiB an atom of water; `kernels` is "fused" or "plain".
    """

    name: str
    dtype: str
    elements: tuple[str, ...] = ()
    device: str = "cpu"
    recompute: float | None = None
    matmul: str = "highest"
    kernels: str = "fused"

    @property
    def options(self) -> ExportOptions:
        return ExportOptions(self.dtype, self.device, self.matmul, recompute=self.recompute, kernels=self.kernels)

    def key(self, model: torch.nn.Module) -> str:
        weights = hashlib.sha256()
        for name, tensor in sorted(model.state_dict().items()):
            weights.update(name.encode() + tensor.numpy().tobytes())
        text = f"{self} {model.config} {weights.hexdigest()} {sources_hash()}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def artifact_folder() -> Path:
    default = Path(tempfile.gettempdir()) / f"tessera-test-artifacts-{getpass.getuser()}"
    folder = Path(os.environ.get("TESSERA_TEST_ARTIFACTS") or default)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def small_model(name: str) -> E2Former:
    """Make a model of SMALL_CONFIGS with seeded weights, float32."""
    torch.manual_seed(SEED)
    return E2Former(SMALL_CONFIGS[name], SMALL_ELEMENTS).requires_grad_(requires_grad=False)


def load_model(name: str, elements: Sequence[str] = ()) -> E2Former:
    """Make the eager model behind an artifact, float32."""
    if name != "demo" and name not in SMALL_CONFIGS:
        raise ValueError(f"configuration '{name}': expected demo or one of {', '.join(SMALL_CONFIGS)}")
    model = load_checkpoint(DEMO / "tessera-demo.pt") if name == "demo" else small_model(name)
    return model.select_elements(elements) if elements else model


def export(request: Request) -> Path:
    """Path of the artifact, exported now unless an earlier run left the same one."""
    model = load_model(request.name, request.elements)
    path = artifact_folder() / f"{request.name}-{request.dtype}-{request.device}-{request.key(model)}.pt2"
    if not path.exists():
        export_model(model, path, request.options, Progress(is_quiet=True))
    return path


@pytest.fixture(scope="session")
def artifact() -> Callable[..., Path]:
    """Give `artifact(name, ...)`, arguments as in Request: `name` is "demo" or a key of SMALL_CONFIGS."""
    made: dict[Request, Path] = {}

    def get(
        name: str,
        dtype: str = "float64",
        elements: tuple[str, ...] = (),
        device: str = "cpu",
        recompute: float | None = None,
        matmul: str = "highest",
        kernels: str = "fused",
    ) -> Path:
        request = Request(name, dtype, tuple(elements), device, recompute, matmul, kernels)
        if request not in made:
            made[request] = export(request)
        return made[request]

    return get
