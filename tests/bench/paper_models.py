# SPDX-License-Identifier: MIT
"""Models that the benches of a GPU measure, by name, and their artifacts.

A name is a kind of product ("highest", "tf32", "tf32x3"), before it "fused-" or "tables-" (without: plain kernels),
before that "anchor-" or "demo-" (without: the paper's size), and after a colon a recompute budget in MiB an atom:
"tables-tf32x3:0.3".
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from tessera.checkpoint import load_checkpoint
from tessera.model import E2Former, ModelConfig, Stage
from tessera_export.pipeline import ExportOptions, export_model
from tessera_export.progress import Progress

ROOT = Path(__file__).resolve().parents[2]
SEED = 7
ELEMENTS = ["H", "O"]
#: Kernels and edge networks by the word before the product.
KINDS = {"": ("plain", "exact"), "fused": ("fused", "exact"), "tables": ("fused", "table")}
PRODUCTS = ("highest", "tf32", "tf32x3")


def paper_model(cutoffs: tuple[float, ...] = (5.0, 5.0, 5.0, 8.0)) -> E2Former:
    """Make a model of the paper's size with random weights, float32: a zero-order stage for each of `cutoffs`, Å."""
    stages = tuple(Stage(cutoff, "zero-order", cutoff) for cutoff in cutoffs)
    config = ModelConfig(lmax=2, channels=256, num_heads=128, head_scalars=8, num_basis=256, out_channels=256,
                         embedding_cutoff=cutoffs[0], stages=stages)  # fmt: skip
    torch.manual_seed(SEED)
    return E2Former(config, tuple(ELEMENTS)).requires_grad_(requires_grad=False)


def anchor_model() -> E2Former:
    """Make the paper's model with four stages at 5 Å, at which the public implementation was measured."""
    return paper_model((5.0,) * 4)


def demo_model() -> E2Former:
    """Return the bundled model on water's elements, float32."""
    model = load_checkpoint(ROOT / "examples/models/tessera-demo.pt").select_elements(ELEMENTS)
    return model.float().requires_grad_(requires_grad=False)


MODELS = {"paper": paper_model, "anchor": anchor_model, "demo": demo_model}


def parse_name(name: str) -> tuple[str, ExportOptions]:
    """Return which of MODELS a name means, and how it is exported for a GPU.

    Raises:
        ValueError: names what is no such word.
    """
    words, _, budget = name.partition(":")
    *before, products = words.split("-")
    model = before.pop(0) if before and before[0] in MODELS else "paper"
    kind = before.pop(0) if before else ""
    if before or kind not in KINDS or products not in PRODUCTS:
        raise ValueError(
            f"model '{name}': expected [anchor-|demo-][fused-|tables-] and one of {', '.join(PRODUCTS)}, then perhaps "
            ":BUDGET; correct the name"
        )
    kernels, radial = KINDS[kind]
    options = ExportOptions("float32", "cuda", matmul=products, recompute=float(budget) if budget else None,
                            kernels=kernels, radial=radial)  # fmt: skip
    return model, options


def file_name(name: str) -> str:
    return f"paper-{name.replace(':', '-')}.pt2"


def export(folder: Path, name: str) -> Path:
    """Export the model of this name into `folder`, which is made if it is missing."""
    model, options = parse_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(name)
    start = time.perf_counter()
    passport = export_model(MODELS[model](), path, options, Progress(is_quiet=True))
    recomputed = ", ".join(passport["recompute"]) or "nothing"
    print(f"exported {name} in {time.perf_counter() - start:.0f} s; recomputed: {recomputed}", flush=True)
    return path


def find_or_export(folder: Path, name: str) -> Path:
    """Find an artifact in the folder TESSERA_PAPER, or export it in a process of its own, for several at once.

    Raises:
        RuntimeError: the export failed, with the end of what it said.
    """
    parse_name(name)
    made = Path(os.environ.get("TESSERA_PAPER", "")) / file_name(name)
    if made.exists():
        return made
    command = [sys.executable, str(Path(__file__).with_name("gpu_step.py")), "--results", str(folder), "--export", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"export of {name} failed: {done.stdout[-1500:].strip()}")
    print(done.stdout[-1500:].strip(), flush=True)
    return folder / file_name(name)
