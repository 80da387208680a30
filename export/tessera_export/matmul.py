# SPDX-License-Identifier: MIT
"""Precision of float32 matrix products: a setting of the process that compiled code follows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from tessera_export.errors import ExportError

#: What torch calls each setting of `--matmul`. "high" lets cuBLAS round the factors to TF32 (10 bits of mantissa). With
#: "tf32x3" the linear maps of atoms are products of halves (`tessera.model.split_products`); what is left is exact.
TORCH_PRECISION = {"highest": "highest", "tf32": "high", "tf32x3": "highest"}


@contextmanager
def matmul_precision(matmul: str) -> Iterator[None]:
    """Set the precision of float32 products within a block, and the former one after it.

    Compiled code calls cuBLAS through libtorch, which asks for the setting at each product; Inductor's own kernels hold
    no products unless it is told to tune them. So the block must cover each run of an artifact too.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(TORCH_PRECISION[matmul])
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


_PRODUCTS = {getattr(torch.ops.aten, name).default for name in ("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "addmv")}


class RoundedProducts(TorchDispatchMode):
    """Within it, float32 matrix products on any device round their factors to TF32, as tensor cores do.

    Tells on the CPU how far TF32 moves the results of a model; sums are float32, on tensor cores too.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Round the two factors, which are the last two positional arguments of all products."""
        if func in _PRODUCTS:
            args = (*args[:-2], *tree_map(round_to_tf32, args[-2:]))
        return func(*args, **(kwargs or {}))


def round_to_tf32(x: Tensor) -> Tensor:
    """Keep 10 of 23 bits of mantissa, to nearest; other dtypes than float32 stay as they are."""
    if x.dtype != torch.float32:
        return x
    dropped = 13
    return ((x.contiguous().view(torch.int32) + (1 << (dropped - 1))) & -(1 << dropped)).view(torch.float32)


def check_matmul(matmul: str, device: str, dtype: str) -> None:
    """Refuse TF32 where there is none.

    Raises:
        ExportError: names the device or the dtype.
    """
    if matmul == "highest":
        return
    if device != "cuda":
        raise ExportError(
            f"--matmul {matmul}: expected --device cuda, whose tensor cores have that format, found {device}; "
            "leave it out"
        )
    if dtype != "float32":
        raise ExportError(f"--matmul {matmul}: expected --dtype float32, found {dtype}, whose products stay exact; "
                          "leave one of them out")  # fmt: skip
