# SPDX-License-Identifier: MIT
"""Compile the fused kernels for an H200 without a GPU; print what the compiler says of them as JSON.

    python tests/python/triton_ahead.py spills     registers, spilled bytes, bytes of shared memory of each kernel
    python tests/python/triton_ahead.py trace      the step's trace, export and decomposition: what kernels write
    python tests/python/triton_ahead.py model      a model's step as the exporter traces it: its operators
    python tests/python/triton_ahead.py indices    index types of Inductor's own kernels, by the bound of an extent

A process of its own, since Triton's interpreter, in which tests without a GPU run, cannot compile.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import torch
import triton
from torch._dynamo.device_interface import CudaInterface
from torch._functorch.aot_autograd import aot_export_module
from torch._guards import detect_fake_mode
from torch._inductor import config as inductor_config
from torch._inductor import scheduler
from torch._inductor.debug import DebugContext
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tessera.kernels import (
    triton_attention,
    triton_attention_backward,
    triton_attention_ops,
    triton_halves,
    triton_records,
    triton_table_sum,
)
from tessera.model import E2Former, EdgeList, ModelConfig, Stage
from tessera.model.radial_table import tabulate
from tessera.ops import gpu, triton_edges
from tessera_export.trace import export_step, trace_step

H200 = GPUTarget("cuda", 90, 32)
INT64 = ("row", "neighbor", "order", "index", "receiver_range", "sender_range")
#: A constant of a compiled program comes as float64.
TYPES = {"halves": "*fp16"}
#: The paper's model: scalars, value planes, heads, width of each of the two maps of queries and keys.
SCALARS, PLANES, HEADS, HIDDEN = 8, 18, 128, 512


def compiled(kernel, constants, dtype, **options):
    """Registers, spilled bytes, shared bytes and barriers of one kernel."""
    signature, attributes = {}, {}
    for place, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name.startswith("num_"):
            signature[name] = "i64"
        else:
            signature[name] = "*i64" if name in INT64 else "*i1" if name == "active" else TYPES.get(name, f"*{dtype}")
            if signature[name].startswith("*"):
                attributes[place,] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    binary = triton.compile(source, target=H200, options={"num_warps": 1, **options})
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True)
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", text.stdout + text.stderr)}
    return {
        "registers": found["REG"],
        "spilled": found["STACK"] + found["LOCAL"],
        "shared": binary.metadata.shared,
        "barriers": binary.asm["ptx"].count("bar.sync"),
    }


def attention_kernels():
    """Each attention kernel with the constants that its launch chooses."""
    kernels = (
        triton_attention.attention_forward,
        triton_attention_backward.attention_backward_receivers,
        triton_attention_backward.attention_backward_senders,
    )
    states = (triton_attention_ops.forward_launch, triton_attention_ops.receivers_launch,
              triton_attention_ops.senders_launch)  # fmt: skip
    for kernel, launch_of in zip(kernels, states, strict=True):
        for moments in (1, 3):
            launch = launch_of(HEADS)
            for has_table in (False, True):
                yield kernel, {
                    "HAS_TABLE": has_table, "HAS_FACTOR": moments > 1, "IS_SMOOTH": False, "SCALARS": SCALARS,
                    "VALUES": PLANES,
                    "MOMENTS": moments, "HEADS": HEADS, "BLOCK": launch.block, "ROWS": launch.rows,
                }, launch.warps  # fmt: skip


def spills():
    """The kernels in float32; float64 serves tests and verification."""
    found = {}
    for kernel, constants, warps in attention_kernels():
        gates = "table" if constants["HAS_TABLE"] else "gates"
        title = f"{kernel.fn.__name__} A={constants['MOMENTS']} rows={constants['ROWS']} {gates}"
        found[title] = compiled(kernel, constants, "fp32", num_warps=warps)
    constants = {"HAS_TABLE": True, "IS_ORDERED": True, "WIDTH": triton_records.SLOPES_WIDTH,
                 "BLOCK": triton_records.BLOCK}  # fmt: skip
    kernel = triton_records.write_records
    found[kernel.fn.__name__] = compiled(kernel, constants, "fp32", num_warps=triton_records.WARPS)
    for kernel in (triton_table_sum.table_sum_forward, triton_table_sum.table_sum_backward):
        constants = {"DEGREES": 3, "CHANNELS": 256, "BLOCK": triton_table_sum.channel_blocks(256)[0]}
        found[kernel.fn.__name__] = compiled(kernel, constants, "fp32")
    for inputs in (256, 1536):
        width = triton_halves.width_of(inputs)
        constants = {"LARGEST": 256.0, "LEAST": 2.0**-100, "DEGREES": 3, "INPUTS": inputs, "WIDTH": width,
                     "TILE": triton_halves.tile_of(width)}  # fmt: skip
        kernel = triton_halves.split_rows_kernel
        found[f"{kernel.fn.__name__} {inputs}"] = compiled(kernel, constants, "fp32", num_warps=triton_halves.WARPS)
    width = triton_halves.width_of(HIDDEN)
    for degree in range(3):
        constants = {"LARGEST": 256.0, "LEAST": 2.0**-100, "HAS_BIAS": degree == 0, "COUNT": 2 * degree + 1,
                     "HIDDEN": HIDDEN, "WIDTH": width,
                     "TILE": triton_halves.pair_tile_of(width)}  # fmt: skip
        kernel = triton_halves.split_pair_gradients_kernel
        found[f"{kernel.fn.__name__} {degree}"] = compiled(kernel, constants, "fp32", num_warps=triton_halves.WARPS)
    return found


def step(query, payload, table, row, fraction, envelope, slope, factor, active, receiver, sender, receiver_range,
         sender_order, sender_range, harmonics, radial):  # fmt: skip
    """Attention and an embedding with all their gradients and rows in halves, as the exporter records them."""
    leaves = [x.detach().requires_grad_() for x in (query, payload, fraction, envelope, factor, harmonics)]
    query, payload, fraction, envelope, factor, harmonics = leaves
    edges = EdgeList(None, None, receiver, sender, receiver_range, sender_order, sender_range)
    message = triton_edges.table_attention(
        query, payload, table, row, fraction, envelope, slope, factor, active, edges, is_smooth=False
    )
    sums = triton_edges.table_sum(harmonics, radial, row, fraction, envelope, edges)
    total = message.square().sum() + sums.square().sum()
    rows, scale = triton_halves.split_rows(sums.detach())
    product, incoming = sums[:, :3].detach().reshape(-1, 256), query[:, 0].detach().contiguous()
    pair = triton_halves.split_pair_gradients(product, scale[: 3 * query.shape[0]], table[0, 0], incoming, 1)
    return (message.detach(), rows, scale, *pair, *torch.autograd.grad(total, leaves))


def step_inputs():
    rows, extended, edges, heads = 37, 48, 171, 128
    index = torch.int64
    shapes = [(rows, 8, heads), (extended, 26, heads), (300, 2, heads), (edges, index), (edges,), (edges,), (edges,),
              (edges, 3),
              (edges, torch.bool), (edges, index), (edges, index), (rows, 2, index), (edges, index),
              (extended, 2, index), (edges, 9), (300, 3, 256)]  # fmt: skip
    names = {rows: "N", extended: "M", edges: "E"}
    tensors, dims = [], []
    for shape in shapes:
        dtype = shape[-1] if isinstance(shape[-1], torch.dtype) else torch.float32
        extents = [extent for extent in shape if not isinstance(extent, torch.dtype)]
        tensors.append(torch.zeros(extents, dtype=dtype))
        dims.append({0: names[extents[0]]} if extents[0] in names else None)
    return tensors, dims


class NoGpu:
    """What torch asks of a driver when it looks for the arrays that a kernel writes."""

    def get_current_target(self):
        return H200

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_current_device(self):
        return 0


class Recorded(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return self.module(*inputs)


def trace():
    triton.runtime.driver.set_active(NoGpu())
    tensors, dims = step_inputs()
    recorded = make_fx(step, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*tensors)
    free = {name: Dim(name, min=2) for name in ("N", "M", "E")}
    shapes = tuple(None if axes is None else {0: free[axes[0]]} for axes in dims)
    program = torch.export.export(Recorded(recorded), tuple(tensors), dynamic_shapes=(shapes,), strict=False)
    placeholders = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
    decomposed, _ = aot_export_module(program.module(), placeholders, trace_joint=False, decompositions={})
    calls = [node for node in decomposed.graph.nodes if "triton_kernel_wrapper" in str(node.target)]
    return {
        "operators": [str(node.target) for node in program.graph.nodes if "tessera_triton" in str(node.target)],
        "free": sorted(str(value.shape[0]) for value in placeholders if not isinstance(value.shape[0], int)),
        "writes": [sorted(node.kwargs["tensors_to_clone"]) for node in calls],
    }


def model():
    """Operators of a model with tables and fused attention; the exporter checks that all extents stay free."""
    stages = (Stage(3.0, "zero-order", 3.0), Stage(4.0, "so2-first-order", 4.0))
    config = ModelConfig(lmax=1, channels=8, num_heads=4, head_scalars=2, num_basis=6, out_channels=8,
                         embedding_cutoff=3.0, stages=stages)  # fmt: skip
    network = tabulate(E2Former(config, ("H", "O")).requires_grad_(requires_grad=False), 2)
    network.set_fused(is_fused=True)
    program = export_step(trace_step(network, gpu), network)
    names = [str(node.target) for node in program.graph.nodes if "tessera" in str(node.target)]
    return {name: names.count(name) for name in names if "tessera_triton" in name}


class SumsRows(torch.nn.Module):
    """A kernel that reads [n, 256]."""

    def forward(self, x):
        return x.sin() * 2.0, x.sum(1)


class Properties:
    """What Inductor asks of an H200 before it writes code for one."""

    name, major, minor, warp_size, multi_processor_count = "H200", 9, 0, 32, 132
    regs_per_multiprocessor, max_threads_per_multi_processor, max_threads_per_block = 65536, 2048, 1024
    shared_memory_per_block, shared_memory_per_block_optin = 48 << 10, 227 << 10


def generated(largest):
    """Inductor's code of SumsRows for a GPU, as in a compilation ahead, with at most `largest` rows."""
    with FakeTensorMode(shape_env=ShapeEnv()):
        x = torch.empty(7, 256, device="cuda")
    program = torch.export.export(SumsRows(), (x,), dynamic_shapes=({0: Dim("n", min=2, max=largest)},), strict=False)
    inputs = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
    fake = detect_fake_mode(inputs)
    lowering = GraphLowering(program.graph_module, example_inputs=inputs, shape_env=fake.shape_env)
    with V.set_fake_mode(fake), V.set_graph_handler(lowering), V.set_aot_compilation(True), DebugContext():
        lowering.run(*inputs)
        return lowering.codegen()[0].value


def indices():
    """Of an extent without a bound, with the largest for which 32 bits hold [n, 256], and with one more."""
    triton.runtime.driver.set_active(NoGpu())
    with (
        inductor_config.patch(compile_threads=1),
        patch.object(CudaInterface, "get_device_properties", lambda *_: Properties),
        patch.object(torch.cuda, "get_device_properties", lambda *_: Properties),
        patch.object(scheduler, "has_triton", lambda: True),
    ):
        fitting = (2**31 - 1) // 256
        bounds = {"none": None, "fitting": fitting, "larger": fitting + 1}
        return {name: re.findall(r"'xnumel': '(\w+)'", generated(bound)) for name, bound in bounds.items()}


if __name__ == "__main__":
    actions = {"spills": spills, "trace": trace, "model": model, "indices": indices}
    sys.stdout.write(json.dumps(actions[sys.argv[1]](), indent=1))
