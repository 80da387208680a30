# SPDX-License-Identifier: MIT
"""Where a step's time goes: the same step in plain PyTorch, compiled, with fused kernels, with tables, and so on.

    python -m tests.bench.step [--device cpu|cuda] [--model demo|paper] [--sizes 111,222] [--repeats 5]
        [--variants plain,compiled,fused,tables,...] [--results FOLDER --commit NAME]

Sizes are replications of the box of 216 waters. All variants of a size run in turn in each round, so that a noisy
machine treats them alike; times are medians over rounds. |dE| and max|dF| are against the network in float64. Peak MiB
is what PyTorch allocates on a GPU; on a CPU, what the resident set grows by. The floor is the time that the step's
matrix products and the rows that its edges read would take at the speed that this device shows for large products and
large copies. With --results it writes a table and a picture beside it.
"""

import argparse
import copy
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("python", "export", "tests", "tests/lammps", "tests/bench")]

from gpu_step import paper_model  # noqa: E402
from resident import measured_growth  # noqa: E402

import tessera.ops  # noqa: E402
from many_ranks import water_216  # noqa: E402
from tessera.checkpoint import load_checkpoint  # noqa: E402
from tessera.kernels import reference  # noqa: E402
from tessera.model import E2Former, Graph, build_graph, energy_and_edge_gradients, forces_and_strain  # noqa: E402
from tessera_export.compiled import CompiledModel  # noqa: E402
from tessera_export.pipeline import ExportOptions, export_model  # noqa: E402
from tessera_export.progress import Progress  # noqa: E402

#: Atoms above which plain PyTorch is left out: it keeps a row of every edge, 40 kB in the paper's model.
LARGEST_EAGER = {"demo": 20_000, "paper": 1_000}
VARIANTS = {
    "plain": None,
    "compiled": {"kernels": "plain", "radial": "exact"},
    "fused": {"kernels": "fused", "radial": "exact"},
    "tables": {"kernels": "fused", "radial": "table"},
    "tf32": {"kernels": "fused", "radial": "table", "matmul": "tf32"},
}
LABELS = {
    "plain": "plain PyTorch, eager",
    "compiled": "+ compiled",
    "fused": "+ fused attention",
    "tables": "+ tables of edge networks",
    "tf32": "+ TF32 products",
}
HEADER = """# One step, piece by piece: {model} model, {device}

float32; water; commit {commit}; torch {torch}; {threads} thread(s); medians of {repeats} rounds in which all variants
take turns. Ratio: time of the first row over that of this one. Floor: matrix products at {flops:.2f} TFLOP/s and rows
read by edges at {bytes:.0f} GB/s, as this device shows them for large products and copies in the same run; last column:
measured over floor.
|dE| and max|dF|: against float64 with the networks themselves.

| atoms | variant | ms | ratio | peak MiB | \\|dE\\| meV/atom | max\\|dF\\| eV/Å | floor ms | over floor |
|---|---|---|---|---|---|---|---|---|
"""

Step = Callable[[Graph], tuple[torch.Tensor, list[torch.Tensor]]]


@dataclass
class Row:
    """What one variant gave at one size: times in s, MiB, eV, eV/Å."""

    atoms: int
    variant: str
    times: list[float]
    peak: float = 0.0
    energy_error: float = 0.0
    force_error: float = 0.0
    floor: float = 0.0

    @property
    def milliseconds(self) -> float:
        return 1e3 * float(np.median(self.times))


def load(name: str) -> E2Former:
    """The bundled model on water's elements, or one of the paper's size with random weights; float32."""
    if name == "paper":
        return paper_model()
    model = load_checkpoint(ROOT / "examples/models/model.pt").select_elements(["H", "O"])
    return model.float().requires_grad_(requires_grad=False)


def steps_of(model: E2Former, variants: list[str], device: str, folder: Path) -> dict[str, Step]:
    """Make every variant ready to run."""
    steps: dict[str, Step] = {}
    for variant in variants:
        if variant == "plain":
            eager = copy.deepcopy(model).to(device)
            steps[variant] = lambda graph, eager=eager: energy_and_edge_gradients(eager, graph, reference)
            continue
        path = folder / f"{variant}.pt2"
        start = time.perf_counter()
        options = ExportOptions("float32", device, **VARIANTS[variant])
        export_model(copy.deepcopy(model), path, options, Progress(is_quiet=True))
        print(f"exported {variant} in {time.perf_counter() - start:.0f} s", flush=True)
        steps[variant] = CompiledModel(path).run
    return steps


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def move(graph: Graph, device: str) -> Graph:
    """The same graph on a device; its plan names host data."""

    def tensors(value: object) -> dict[str, torch.Tensor]:
        return {name: field.to(device) for name, field in vars(value).items() if isinstance(field, torch.Tensor)}

    lists = [replace(edges, **tensors(edges)) for edges in graph.lists]
    return replace(graph, **(tensors(graph) | {"plan": graph.plan}), lists=lists)


def measure(
    model: E2Former, shape: tuple[int, int, int], steps: dict[str, Step], device: str, repeats: int
) -> list[Row]:
    """Run all variants in turn on one box of water."""
    atoms = water_216().repeat(shape)
    graph = build_graph(model, atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc)
    exact = copy.deepcopy(model).double()
    exact.set_fused(is_fused=True)
    energy, gradients = energy_and_edge_gradients(exact, graph, tessera.ops)
    forces = forces_and_strain(graph, gradients)[0]
    moved = move(graph, device)
    rows = [Row(len(atoms), variant, []) for variant in steps]
    for row in rows:
        found = {}

        def once(row: Row = row, found: dict = found) -> None:
            found["result"] = steps[row.variant](moved)
            synchronize(device)

        row.peak = measured_growth(once, device)
        atom_energy, gradients = found["result"]
        row.energy_error = abs(float(atom_energy.cpu().sum() - energy.sum()))
        ours = forces_and_strain(graph, [gradient.cpu() for gradient in gradients])[0]
        row.force_error = float((ours - forces).abs().max())
    for _ in range(repeats):
        for row in rows:
            start = time.perf_counter()
            steps[row.variant](moved)
            synchronize(device)
            row.times.append(time.perf_counter() - start)
    return rows


def count_flops(model: E2Former, graph: Graph, *, has_tables: bool) -> float:
    """Floating-point operations of a step's matrix products; tables leave none at the edges."""
    with FlopCounterMode(display=False) as counter:
        energy_and_edge_gradients(model, graph, tessera.ops)
    total = counter.get_total_flops()
    if not has_tables:
        return total
    for part, stage in zip(model.parts.values(), (model.embedding_stage, *model.config.all_stages), strict=True):
        network = part.network if hasattr(part, "network") else part.gate.network
        weights = sum(weight.numel() for name, weight in network.named_parameters() if name.startswith("weight"))
        num_networks, hidden, _ = network.weight_in.shape
        # Only the radial inputs reach an edge: products with the rows of elements are made once.
        weights -= 2 * network.table_width * num_networks * hidden
        count = graph.lists[model.cutoffs.index(stage.cutoff)].receiver.shape[0]
        total -= 4.0 * weights * count  # forward, and backward by the inputs
    return total


def count_bytes(model: E2Former, graph: Graph) -> float:
    """Bytes of the rows that attention reads edge by edge: once forward, and once for each end backward."""
    config = model.config
    row = config.num_heads * config.head_scalars + (config.lmax + 1) ** 2 * config.channels
    visits = sum(graph.lists[model.cutoffs.index(stage.cutoff)].receiver.shape[0] for stage in config.all_stages)
    return 3.0 * 4.0 * row * visits


def device_speed(device: str) -> tuple[float, float]:
    """Operations a second of a large float32 product, and bytes a second of a large copy (read and written)."""
    size = 8192 if device == "cuda" else 1024
    a, b = torch.rand(size, size, device=device), torch.rand(size, size, device=device)
    source = torch.rand(2**28 if device == "cuda" else 2**25, device=device)
    target = torch.empty_like(source)

    def best(function: Callable[[], object]) -> float:
        times = []
        for _ in range(6):
            synchronize(device)
            start = time.perf_counter()
            function()
            synchronize(device)
            times.append(time.perf_counter() - start)
        return min(times[1:])

    return 2.0 * size**3 / best(lambda: a @ b), 8.0 * source.numel() / best(lambda: target.copy_(source))


def table(rows: list[Row]) -> list[str]:
    lines = []
    for row in rows:
        first = next(other for other in rows if other.atoms == row.atoms)
        ratio = first.milliseconds / row.milliseconds
        lines.append(
            f"| {row.atoms} | {LABELS[row.variant]} | {row.milliseconds:.1f} | {ratio:.2f} "
            f"| {row.peak:.0f} | {1e3 * row.energy_error / row.atoms:.1e} | {row.force_error:.1e} "
            f"| {1e3 * row.floor:.1f} | {row.milliseconds / (1e3 * row.floor):.1f} |"
        )
    return lines


def draw(rows: list[Row], path: Path, title: str) -> None:
    """Bars of time and memory, one group a size."""
    import matplotlib as mpl  # noqa: PLC0415 (only the picture needs it)

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    sizes = sorted({row.atoms for row in rows})
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), constrained_layout=True)
    variants = list(dict.fromkeys(row.variant for row in rows))
    width = 0.8 / len(variants)
    for place, variant in enumerate(variants):
        found = {row.atoms: row for row in rows if row.variant == variant}
        at = [sizes.index(atoms) + place * width for atoms in found]
        axes[0].bar(at, [row.milliseconds for row in found.values()], width, label=LABELS[variant])
        axes[1].bar(at, [row.peak for row in found.values()], width)
    for axis, label in zip(axes, ("ms a step", "peak MiB"), strict=True):
        axis.set_xticks([place + 0.4 - width / 2 for place in range(len(sizes))], [f"{size} atoms" for size in sizes])
        axis.set_ylabel(label)
        axis.set_yscale("log")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--model", choices=["demo", "paper"], default="demo")
    parser.add_argument("--sizes", default="111")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--variants", default="plain,compiled,fused,tables")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    model, variants = load(options.model), options.variants.split(",")
    unknown = sorted(set(variants) - set(VARIANTS))
    if unknown:
        parser.error(f"--variants: expected some of {', '.join(VARIANTS)}, found {', '.join(unknown)}")
    flops, bandwidth = device_speed(options.device)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        steps = steps_of(model, variants, options.device, Path(folder))
        for size in options.sizes.split(","):
            shape = tuple(int(digit) for digit in size)
            few = steps
            if 648 * np.prod(shape) > LARGEST_EAGER[options.model]:
                few = {variant: step for variant, step in steps.items() if variant != "plain"}
            found = measure(model, shape, few, options.device, options.repeats)
            one = water_216()
            graph = build_graph(model, one.numbers, one.positions, one.cell.array, one.pbc)
            for row in found:
                has_tables = (VARIANTS[row.variant] or {}).get("radial") == "table"
                row.floor = np.prod(shape) * (
                    count_flops(model, graph, has_tables=has_tables) / flops + count_bytes(model, graph) / bandwidth
                )
            rows += found
            print("\n".join(table(found)), flush=True)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    header = HEADER.format(model=options.model, device=name, commit=options.commit, torch=torch.__version__,
                           threads=torch.get_num_threads(), repeats=options.repeats, flops=flops / 1e12,
                           bytes=bandwidth / 1e9)  # fmt: skip
    text = header + "\n".join(table(rows)) + "\n"
    print("\n" + text)
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        stem = options.results / f"step_{options.model}_{options.device}"
        stem.with_suffix(".md").write_text(text)
        draw(rows, stem.with_suffix(".png"), f"One step of the {options.model} model, {name}")


if __name__ == "__main__":
    main()
