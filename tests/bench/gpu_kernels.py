# SPDX-License-Identifier: MIT
"""Time the fused Triton kernels on a GPU at the paper's shape, beside what they replace; write a table.

    python tests/bench/gpu_kernels.py --results FOLDER [--repeat 2,2,4] [--commit NAME] [--sweep] [--no-composition]
        [--order ascending]

Water of 10368 atoms at 5 and 8 Å in curve order, H = 128, D = 8, C = 256, lmax = 2, float32. Per kernel: median time,
bytes counted (rows that edges ask for + tables + what is moved once; `kernel_traffic.py`), the rate at which they
went, and bytes where each program reads a row once. `--sweep` tries warps and blocks of heads. Compositions: the same
forward and backward pass from the compiled operators and, at 5 Å, from plain torch; the error is the largest difference
from the composition in float32. Then maps by degree with each kind of product (`linear_times.py`). Calls are replayed
from captured graphs (`graph_timer.py`), but those that the kernels replace: they last so long that the host is ahead.
"""

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path

import kernel_traffic
import linear_times
import torch
import triton
from graph_timer import REPEATS, time_ms
from water_list import scattered, water_list

from tessera import ops
from tessera.kernels import reference, triton_attention_ops, triton_table_sum
from tessera.model import EdgeList
from tessera.ops import triton_edges

HEADS, SCALARS, ROWS, CHANNELS, DEGREES = 128, 8, 9, 256, 3
PLANES = ROWS * CHANNELS // HEADS
INTERVALS = 1024
"""Of a spline, for each pair of elements; eight a width of the radial basis."""
TABLE_ROWS = 4 * (INTERVALS + reference.SPLINE_ROWS - 1)
SEED = 7
#: Functions of `triton_attention_ops` that choose how a kernel runs.
LAUNCHES = {"forward": "forward_launch", "backward receivers": "receivers_launch", "backward senders": "senders_launch"}
HEADER = """# Fused kernels on one {gpu}

H = 128, D = 8, C = 256, lmax = 2, float32; {atoms} atoms of water in curve order; torch {torch}; triton {triton};
commit {commit}; medians of {repeats} replays of captured graphs.

| cutoff | kernel | rows x block | ms | GB counted | GB/s | GB, each row once | error |
|---|---|---|---|---|---|---|---|
"""


class Case:
    """Inputs of one list on the GPU, and the gradient that comes in."""

    def __init__(self, repeat: tuple[int, int, int], cutoff: float, *, is_scattered: bool = True) -> None:
        edges, element = water_list(repeat, cutoff)
        edges = scattered(edges) if is_scattered else edges
        self.cutoff, self.edges = cutoff, to_gpu(edges)
        num_rows, num_edges = self.edges.num_owned, self.edges.receiver.shape[0]
        generator = torch.Generator("cuda").manual_seed(SEED)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, device="cuda")

        self.query, self.payload = random(num_rows, SCALARS, HEADS), random(num_rows, SCALARS + PLANES, HEADS)
        self.table, self.radial = random(TABLE_ROWS, 2, HEADS), random(TABLE_ROWS, DEGREES, CHANNELS)
        place = edges.vector.norm(dim=1) / cutoff * INTERVALS
        interval = place.long().clamp(max=INTERVALS - 1)
        pair = 2 * element[edges.receiver] + element[edges.owned_sender()]
        self.row = (pair * (INTERVALS + reference.SPLINE_ROWS - 1) + interval).cuda()
        self.fraction = (place - interval).float().cuda()
        self.envelope = torch.rand(num_edges, generator=generator, device="cuda")
        self.slope = torch.randn(num_edges, generator=generator, device="cuda")
        self.harmonics = random(num_edges, ROWS)
        self.active = torch.ones(num_edges, dtype=torch.bool, device="cuda")
        self.grad = random(num_rows, 1, PLANES, HEADS)
        self.grad_sum = random(num_rows, ROWS, CHANNELS)

    def attention_arguments(self) -> tuple[torch.Tensor, ...]:
        """All but the index of the list; no factor."""
        return (
            self.query, self.payload, self.table, self.row, self.fraction, self.envelope, self.slope, None, self.active
        )  # fmt: skip

    def numbers(self) -> tuple[int, int]:
        return self.edges.num_owned, self.edges.receiver.shape[0]


def to_gpu(edges: EdgeList) -> EdgeList:
    fields = ("halo_element", "vector", "receiver", "sender", "receiver_range", "sender_order", "sender_range")
    return EdgeList(*(getattr(edges, name).cuda() for name in fields), halo_rows=edges.halo_rows.cuda())


def attention_kernels(case: Case) -> dict[str, Callable[[], object]]:
    """Each kernel of the attention with tables, on the results of the one before."""
    edges, operators = case.edges, triton_attention_ops
    inputs = case.attention_arguments()
    index = (edges.receiver, edges.sender, edges.receiver_range, edges.sender_order, edges.sender_range)
    message, kept = operators.table_attention(*inputs, *index, False)  # noqa: FBT003
    *_, terms = operators.table_attention_backward_receivers(
        case.grad, message, kept, *inputs, edges.sender, edges.receiver_range, False  # noqa: FBT003
    )  # fmt: skip
    return {
        "forward": lambda: operators.table_attention(*inputs, *index, False),  # noqa: FBT003
        "backward receivers": lambda: operators.table_attention_backward_receivers(
            case.grad, message, kept, *inputs, edges.sender, edges.receiver_range, False  # noqa: FBT003
        ),
        "backward senders": lambda: operators.table_attention_backward_senders(
            case.grad, terms, *inputs, edges.receiver, edges.sender_order, edges.sender_range, False  # noqa: FBT003
        ),
    }  # fmt: skip


def launch_of(kernel: str) -> triton_attention_ops.Launch:
    return getattr(triton_attention_ops, LAUNCHES[kernel])(HEADS)


def attention_lines(case: Case) -> list[str]:
    """Time each kernel with the launch that is set now."""
    receiver, sender = case.edges.receiver.cpu().numpy(), case.edges.sender.cpu().numpy()
    lines = []
    for kernel, call in attention_kernels(case).items():
        launch = launch_of(kernel)
        near, far = (sender, receiver) if kernel == "backward senders" else (receiver, sender)
        total = sum(kernel_traffic.count(kernel, *case.numbers(), len(near)))
        once = sum(kernel_traffic.count(kernel, *case.numbers(), kernel_traffic.steps(near, far, launch.rows)))
        shape = f"{launch.rows} x {launch.block}"
        lines.append(line(case.cutoff, f"attention {kernel}", shape, time_ms(call), total, once=once))
    return lines


def line(
    cutoff: float, name: str, shape: str, ms: float, gigabytes: float | None, error: float | None = None,
    once: float | None = None,
) -> str:  # fmt: skip
    rate = "" if gigabytes is None else f"{gigabytes / ms * 1e3:.0f}"
    counted = "" if gigabytes is None else f"{gigabytes:.2f}"
    wrong = "" if error is None else f"{error:.1e}"
    least = "" if once is None else f"{once:.2f}"
    text = f"| {cutoff:g} | {name} | {shape} | {ms:.3f} | {counted} | {rate} | {least} | {wrong} |"
    print(text, flush=True)
    return text


def table_sum_lines(case: Case) -> list[str]:
    """Time the embedding's sum and its derivative."""
    inputs = (case.harmonics, case.radial, case.row, case.fraction, case.envelope, case.edges.receiver_range)
    num_rows, num_edges = case.numbers()
    blocks = triton_table_sum.channel_blocks(CHANNELS)
    table = 6 * DEGREES * CHANNELS * 4 * num_edges
    own = num_rows * ROWS * CHANNELS * 4
    forward = (table + own + num_edges * blocks[1] * (ROWS + 4) * 4) / 1e9
    backward = (table + own + num_edges * blocks[1] * 2 * (ROWS + 4) * 4) / 1e9
    shape = f"1 x {blocks[0]}"
    return [
        line(case.cutoff, "table sum forward", shape, time_ms(lambda: triton_table_sum.table_sum(*inputs)), forward),
        line(
            case.cutoff, "table sum backward", shape,
            time_ms(lambda: triton_table_sum.table_sum_backward_edges(case.grad_sum, *inputs)), backward,
        ),
    ]  # fmt: skip


def composed_attention(query, payload, table, row, fraction, envelope, slope, factor, active, edges, is_smooth):  # noqa: ARG001
    """The same message from the compiled operators: splines in torch, edges x heads in memory."""
    gates = reference.spline(table, row, fraction)
    key, value = payload[:, :SCALARS].transpose(1, 2), payload[:, SCALARS:].reshape(-1, ROWS, CHANNELS)
    score = gates[:, 0] * ops.edge_dot(query.transpose(1, 2), key, edges)
    largest = ops.segment_max(score, active, edges)
    weight = torch.exp(score - largest.detach()[edges.receiver]) * envelope[:, None]
    floor = 1.0 if is_smooth else torch.exp(largest - largest.detach())
    normalizer = ops.segment_sum(weight, edges) + reference.NORMALIZER_FLOOR * floor
    summed = ops.weighted_sum((weight * gates[:, 1])[:, None], value, edges)
    return summed.view(-1, 1, PLANES, HEADS) / normalizer[:, None, None]


def step_of(function: Callable[..., torch.Tensor], case: Case) -> list[torch.Tensor]:
    """Forward and backward pass of one attention."""
    query, payload, table, row, fraction, envelope, slope, factor, active = case.attention_arguments()
    leaves = [tensor.detach().requires_grad_() for tensor in (query, payload, fraction)]
    linked = envelope + slope * (leaves[2] - fraction)  # as of one distance
    message = function(leaves[0], leaves[1], table, row, leaves[2], linked, slope, factor, active, case.edges, False)  # noqa: FBT003
    return [message.detach(), *torch.autograd.grad((message * case.grad).sum(), leaves)]


def composition_lines(case: Case) -> list[str]:
    """Time whole passes of the fused kernels and of what they replace; largest relative difference."""
    functions = {"composed": composed_attention}
    if case.cutoff <= 5.0:  # beyond, plain torch needs more memory than there is
        functions["plain torch"] = reference.table_attention
    fused = step_of(triton_edges.table_attention, case)
    lines = [line(case.cutoff, "pass, fused", "", time_ms(lambda: step_of(triton_edges.table_attention, case)), None)]
    for name, function in functions.items():
        other = step_of(function, case)
        error = max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(fused, other, strict=True))
        ms = time_ms(lambda function=function: step_of(function, case), is_captured=False)
        lines.append(line(case.cutoff, f"pass, {name}", "", ms, None, error))
    return lines


def with_launches(warps: int, block: int) -> None:
    """Let all attention kernels serve a row a warp and `block` heads a program."""
    launch = triton_attention_ops.Launch(warps, block, -(-HEADS // block), warps)
    for name in LAUNCHES.values():
        setattr(triton_attention_ops, name, lambda *_: launch)


def sweep(cases: list[Case]) -> list[str]:
    """Try launches: warps and blocks of heads."""
    lines = []
    chosen = {name: getattr(triton_attention_ops, name) for name in LAUNCHES.values()}
    for block, warps in itertools.product((32,), (1, 2, 4, 8, 16, 32)):
        with_launches(warps, block)
        try:
            for case in cases:
                lines += attention_lines(case)
        except triton.runtime.errors.OutOfResources as error:  # more registers than a multiprocessor has
            print(f"{warps} warps, {block} heads: {error}", flush=True)
    for name, function in chosen.items():
        setattr(triton_attention_ops, name, function)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--repeat", default="2,2,4")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--order", choices=["scattered", "ascending"], default="scattered", help="of lists")
    parser.add_argument("--no-composition", action="store_true")
    parser.add_argument("--no-linears", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("expected a GPU, found none; run on a machine with one (tests/cuda/run_all.sh)")
    repeat = tuple(int(number) for number in options.repeat.split(","))
    cases = [Case(repeat, cutoff, is_scattered=options.order == "scattered") for cutoff in (5.0, 8.0)]
    lines = []
    for case in cases:
        lines += attention_lines(case)
    lines += table_sum_lines(cases[0])
    if not options.no_composition:
        for case in cases:
            lines += composition_lines(case)
    if options.sweep:
        lines += sweep(cases)
    num_atoms = cases[0].edges.num_owned
    if not options.no_linears:
        cases.clear()  # their memory
        lines += linear_times.lines_of(num_atoms)
    text = HEADER.format(gpu=torch.cuda.get_device_name(), atoms=num_atoms, torch=torch.__version__,
                         triton=triton.__version__, commit=options.commit, repeats=REPEATS)  # fmt: skip
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "kernels_gpu.md").write_text(text + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
