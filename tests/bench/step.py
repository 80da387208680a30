# SPDX-License-Identifier: MIT
"""Where a step's time goes: the same step in plain PyTorch, compiled, with fused kernels, with tables, and so on.

    python -m tests.bench.step [--device cpu|cuda] [--model demo|paper|anchor] [--sizes 111,222] [--repeats 5]
        [--variants plain,compiled,fused,tables,...] [--budget 0.45] [--results FOLDER --commit NAME]

Sizes are replications of the box of 216 waters. On a CPU all variants of a size run in turn in each round, so that a
noisy machine treats them alike, and take the edges as given; on a GPU each runs alone, and a step is that of the engine
(edges, model and forces of moving atoms, replayed as a graph). Times are medians over rounds. Artifacts that the folder
TESSERA_PAPER has (`gpu_step.py --export NAME`) are not made anew for a GPU. |dE| and max|dF| are against the network in
float64. With --results it writes a table and a picture beside it.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("python", "export", "tests", "tests/lammps", "tests/bench")]

from paper_models import MODELS, file_name, find_or_export, parse_name  # noqa: E402
from step_floor import PASSES, Speed, count, device_speed  # noqa: E402
from step_picture import draw  # noqa: E402
from step_ways import WATER, EngineWay, Outcome, Shape, Way, artifact_way, eager_way, exact_outcome  # noqa: E402

from tessera.model import E2Former  # noqa: E402
from tessera_export.pipeline import export_model  # noqa: E402
from tessera_export.progress import Progress  # noqa: E402

#: Atoms above which plain PyTorch runs on fewer: it keeps a row of every edge, 40 kB in the paper's model.
LARGEST_EAGER = {"cpu": {"demo": 20_000, "paper": 1_000, "anchor": 1_000},
                 "cuda": {"demo": 20_000, "paper": 3_000, "anchor": 3_000}}  # fmt: skip
HEADER = """# One step, piece by piece: {model} model, {device}

float32; water; commit {commit}; torch {torch}; {how};
medians of {repeats} rounds. Rows of fewer atoms are those of plain PyTorch, whose edges need more memory. Ratio: time
an atom of the first row over that of this one. |dE| and max|dF|: against float64 with the networks themselves. Floor:
matrix products at {exact:.2f} TFLOP/s (TF32 and tf32x3: counted once at {tf32:.2f}) and the rows of each attention
stage, moved once in each of {passes} passes at {bytes:.0f} GB/s, as this device shows them for large products and
copies in the same run; last column: measured over floor.

| atoms | variant | ms | ratio | peak MiB | MiB an atom | \\|dE\\| meV/atom | max\\|dF\\| eV/Å | floor ms | over floor |
|---|---|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Variant:
    """A row of the table: `artifact` as in `paper_models.py` without the model, None for plain PyTorch."""

    label: str
    artifact: str | None
    has_tables: bool = False

    @property
    def is_tf32(self) -> bool:
        return self.artifact is not None and "tf32" in self.artifact


VARIANTS = {
    "plain": Variant("plain PyTorch, eager", None),
    "compiled": Variant("+ compiled", "highest"),
    "fused": Variant("+ fused attention", "fused-highest"),
    "tables": Variant("+ tables of edge networks", "tables-highest", has_tables=True),
    "tf32x3": Variant("+ tf32x3 products", "tables-tf32x3", has_tables=True),
    "recompute": Variant("+ recompute", "tables-tf32x3:{budget:g}", has_tables=True),
    "tf32": Variant("TF32 instead", "tables-tf32", has_tables=True),
}


@dataclass
class Row:
    """What one variant gave at one size: seconds, MiB, eV, eV/Å."""

    size: int
    atoms: int
    label: str
    times: list[float]
    floor: float
    peak: float = 0.0
    energy_error: float = 0.0
    force_error: float = 0.0

    @property
    def milliseconds(self) -> float:
        return 1e3 * float(np.median(self.times))

    def compare(self, found: Outcome, exact: Outcome) -> None:
        """Note how far the whole box is from copies of the exact one."""
        copies = self.atoms // WATER
        self.peak = found.peak
        self.energy_error = abs(found.energy - copies * exact.energy)
        self.force_error = float(abs(found.forces - np.tile(exact.forces, (copies, 1))).max())


def artifacts(model: str, variants: Mapping[str, Variant], device: str, folder: Path) -> dict[str, Path]:
    """Make or find the artifact of each variant that has one; those of a GPU all at once."""
    prefix = "" if model == "paper" else f"{model}-"
    names = {key: prefix + variant.artifact for key, variant in variants.items() if variant.artifact}
    if device == "cuda":
        with ThreadPoolExecutor() as pool:
            return dict(zip(names, pool.map(lambda name: find_or_export(folder, name), names.values()), strict=True))
    paths = {}
    for key, name in names.items():
        paths[key] = folder / file_name(name)
        export_model(MODELS[model](), paths[key], replace(parse_name(name)[1], device="cpu"), Progress(is_quiet=True))
        print(f"exported {key}", flush=True)
    return paths


def eager_shape(shape: Shape, most: int) -> Shape:
    """Halve the longest axis until the box has at most that many atoms."""
    shape = list(shape)
    while WATER * np.prod(shape) > most and max(shape) > 1:
        longest = shape.index(max(shape))
        shape[longest] = (shape[longest] + 1) // 2
    return tuple(shape)


def measure(rows: dict[str, Row], make: Callable[[str], Way], exact: Outcome, device: str, repeats: int) -> None:
    """Fill the rows: in turns on a CPU, one after the other on a GPU, which holds one variant at a time."""
    for group in [list(rows)] if device == "cpu" else [[key] for key in rows]:
        ways = {key: make(key) for key in group}
        for key, way in ways.items():
            rows[key].compare(way.first(), exact)
        for _ in range(repeats):
            for key, way in ways.items():
                rows[key].times.append(way.step())
        del way, ways
        if device == "cuda":
            torch.cuda.empty_cache()


def table(rows: list[Row]) -> list[str]:
    lines = []
    for row in rows:
        first = next(other for other in rows if other.size == row.size)
        ratio = first.milliseconds / first.atoms / (row.milliseconds / row.atoms)
        lines.append(
            f"| {row.atoms} | {row.label} | {row.milliseconds:.1f} | {ratio:.2f} | {row.peak:.0f} "
            f"| {row.peak / row.atoms:.3f} | {1e3 * row.energy_error / row.atoms:.1e} | {row.force_error:.1e} "
            f"| {1e3 * row.floor:.1f} | {row.milliseconds / (1e3 * row.floor):.1f} |"
        )
    return lines


def all_rows(options: argparse.Namespace, variants: dict[str, Variant], speed: Speed, folder: Path) -> list[Row]:
    model: E2Former = MODELS[options.model]()
    device, counts, exact = options.device, count(model, options.device), exact_outcome(model, options.device)
    paths = artifacts(options.model, variants, device, folder)
    rows: list[Row] = []
    for size in options.sizes.split(","):
        whole = tuple(int(digit) for digit in size)
        fewer = eager_shape(whole, LARGEST_EAGER[device][options.model])
        shapes = {key: fewer if variant.artifact is None else whole for key, variant in variants.items()}
        found = {}
        for key, variant in variants.items():
            atoms = int(WATER * np.prod(shapes[key]))
            floor = atoms * counts.seconds(speed, has_tables=variant.has_tables, is_tf32=variant.is_tf32)
            found[key] = Row(int(WATER * np.prod(whole)), atoms, variant.label, [], floor)

        def make(key: str, shapes: dict[str, Shape] = shapes) -> Way:
            if variants[key].artifact is None:
                return eager_way(model, shapes[key], device)
            if device == "cuda":
                return EngineWay(paths[key], shapes[key])
            return artifact_way(paths[key], model, shapes[key])

        measure(found, make, exact, device, options.repeats)
        rows += found.values()
        print("\n".join(table(list(found.values()))), flush=True)
    return rows


def read_options() -> tuple[argparse.Namespace, dict[str, Variant]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--model", choices=list(MODELS), default="demo")
    parser.add_argument("--sizes", default="111")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--variants", default="plain,compiled,fused,tables")
    parser.add_argument("--budget", type=float, default=0.45, help="MiB an atom of the variant recompute")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    keys = options.variants.split(",")
    unknown = [key for key in keys if key not in VARIANTS]
    if unknown:
        parser.error(f"--variants: expected some of {', '.join(VARIANTS)}, found {', '.join(unknown)}")
    only_gpu = [key for key in keys if VARIANTS[key].is_tf32]
    if only_gpu and options.device == "cpu":
        parser.error(f"--variants: expected those of a CPU, found {', '.join(only_gpu)}; add --device cuda")
    variants = {key: VARIANTS[key] for key in keys}
    if "recompute" in variants:
        variants["recompute"] = Variant(
            f"+ recompute, {options.budget:g} MiB",
            variants["recompute"].artifact.format(budget=options.budget),
            has_tables=True,
        )
    return options, variants


def main() -> None:
    options, variants = read_options()
    speed = device_speed(options.device)
    with tempfile.TemporaryDirectory() as folder:
        rows = all_rows(options, variants, speed, Path(folder))
    is_gpu = options.device == "cuda"
    name = torch.cuda.get_device_name() if is_gpu else "CPU"
    how = "steps of the engine" if is_gpu else f"{torch.get_num_threads()} thread(s), all variants in turns"
    header = HEADER.format(model=options.model, device=name, commit=options.commit, torch=torch.__version__, how=how,
                           repeats=options.repeats, exact=speed.exact / 1e12, tf32=speed.tf32 / 1e12, passes=PASSES,
                           bytes=speed.bandwidth / 1e9)  # fmt: skip
    text = header + "\n".join(table(rows)) + "\n"
    print("\n" + text)
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        stem = options.results / f"step_{options.model}_{options.device}"
        stem.with_suffix(".md").write_text(text)
        draw(rows, stem.with_suffix(".png"), f"One step of the {options.model} model, {name}")


if __name__ == "__main__":
    main()
