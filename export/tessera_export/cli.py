# SPDX-License-Identifier: MIT
"""The command `tessera-export`: checkpoint in, verified artifact out."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import tessera
from tessera.checkpoint import load_checkpoint
from tessera.model import E2Former
from tessera_export.errors import ExportError
from tessera_export.matmul import TORCH_PRECISION
from tessera_export.pipeline import DTYPES, RADIAL_TOLERANCE, ExportOptions, check_output, export_model
from tessera_export.progress import Progress

logger = logging.getLogger(__name__)


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="tessera-export",
        description="Compile a checkpoint into an artifact (.pt2) that LAMMPS and ASE run without Python. "
        "The compiled program is compared with the eager model, and written only if both agree.",
        epilog="Exit codes: 0 written, 2 bad input, 3 the compiled program disagrees with the eager model.",
    )
    parser.add_argument("checkpoint", type=Path, help="checkpoint (model.pt)")
    parser.add_argument("-c", "--config", type=Path, help="config.yaml (default: beside the checkpoint)")
    parser.add_argument("-o", "--output", type=Path, required=True, help="artifact to write (model.pt2)")
    parser.add_argument(
        "--device",
        choices=["cpu", "cuda"],
        default="cpu",
        help="where the artifact runs (default: cpu); for cuda, export on a machine with the GPU that will run it",
    )
    parser.add_argument(
        "--dtype", choices=list(DTYPES), default="float32", help="type of the network's numbers (default: float32)"
    )
    parser.add_argument("--elements", help="comma-separated elements to keep, in this order (default: all)")
    parser.add_argument("--head", help="head of a checkpoint with several")
    parser.add_argument(
        "--matmul",
        choices=list(TORCH_PRECISION),
        default="highest",
        help="precision of float32 matrix products, with --device cuda only: tf32 is faster and coarser; tf32x3 makes "
        "three products of 11 bits of each in the linear maps of atoms, with errors as of FP32 (default: highest)",
    )
    parser.add_argument(
        "--sm",
        metavar="NUMBER",
        help="compute capability to compile for, such as 90 (default: that of the GPU; another is refused)",
    )
    parser.add_argument(
        "--recompute",
        type=float,
        metavar="BUDGET",
        help="MiB an atom that a run may need (water, one rank, without weights): the backward pass computes anew what "
        "does not fit (default: everything is kept)",
    )
    parser.add_argument(
        "--largest-step",
        type=int,
        metavar="ATOMS",
        help="with --device cuda: atoms that a GPU must take in one step (water); beyond what 32-bit indices hold, "
        "kernels that need it count in 64 bits (default: as many as 32 bits hold)",
    )
    parser.add_argument(
        "--kernels",
        choices=["fused", "plain"],
        default="fused",
        help="attention as one kernel a stage, which keeps nothing of the edges, or as operations that each pass over "
        "all edges (default: fused)",
    )
    parser.add_argument(
        "--radial",
        choices=["table", "exact"],
        help="edge networks as splines of the distance, one a pair of elements, or evaluated at each edge "
        "(default: table for float32 with fused kernels)",
    )
    parser.add_argument(
        "--radial-tolerance",
        type=float,
        default=RADIAL_TOLERANCE,
        metavar="EV_PER_A",
        help="error of a force that tables may bring, eV/Å, which decides how fine they are (default: %(default)g)",
    )
    parser.add_argument(
        "--native-isa",
        action="store_true",
        help="compile for this machine's instruction set; the artifact may not run elsewhere",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log every comparison of the verification")
    parser.add_argument("--version", action="version", version=f"tessera {tessera.__version__}")
    return parser


def load_model(arguments: argparse.Namespace) -> E2Former:
    """Load the checkpoint and keep the elements that were asked for.

    Raises:
        ExportError: with the loader's own text.
    """
    for path in (arguments.checkpoint, arguments.config):
        if path is not None and not path.is_file():
            raise ExportError(f"{path}: no such file")
    try:
        model = load_checkpoint(arguments.checkpoint, config=arguments.config, head=arguments.head)
    except (ValueError, KeyError, OSError) as error:
        raise ExportError(str(error)) from error
    if arguments.elements is None:
        return model
    wanted = [symbol.strip() for symbol in arguments.elements.split(",") if symbol.strip()]
    unknown = [symbol for symbol in wanted if symbol not in model.elements]
    if unknown or not wanted:
        raise ExportError(
            f"--elements {arguments.elements}: the checkpoint knows {', '.join(model.elements)}, "
            f"not {', '.join(unknown) or 'an empty list'}; symbols are spelt as in the periodic table (Cl, not CL)"
        )
    if len(set(wanted)) != len(wanted):
        raise ExportError(f"--elements {arguments.elements}: an element is named twice")
    return model.select_elements(wanted)


def run(arguments: argparse.Namespace) -> None:
    """Carry out one export and report it.

    Raises:
        ExportError: as the phases.
    """
    options = ExportOptions(
        dtype=arguments.dtype,
        device=arguments.device,
        matmul=arguments.matmul,
        is_native=arguments.native_isa,
        sm=arguments.sm,
        recompute=arguments.recompute,
        largest_step=arguments.largest_step,
        kernels=arguments.kernels,
        radial=arguments.radial,
        radial_tolerance=arguments.radial_tolerance,
    )
    check_output(arguments.output)
    progress = Progress()
    try:
        with progress.phase("load"):
            model = load_model(arguments)
            progress.note(", ".join(model.elements))
        passport = export_model(model, arguments.output, options, progress)
    finally:
        progress.close()
    logger.info(
        "wrote %s: %s, %s, cutoffs %s Å, %.0f s",
        arguments.output,
        "-".join(passport["elements"]),
        passport["dtype"],
        passport["cutoffs"],
        sum(progress.seconds.values()),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    level = logging.DEBUG if arguments.verbose else logging.INFO
    for name in ("tessera", "tessera_export"):
        logging.getLogger(name).setLevel(level)
    try:
        run(arguments)
    except ExportError as error:
        sys.stderr.write(f"tessera-export: error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
