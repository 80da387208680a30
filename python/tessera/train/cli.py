# SPDX-License-Identifier: MIT
"""The command `tessera-train`: labelled structures in, model.pt out."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import tessera
from tessera.train.errors import TrainError
from tessera.train.ranks import Ranks
from tessera.train.record import RecordedStep
from tessera.train.run import Run
from tessera.train.settings import read_settings
from tessera.train.step import CompiledStep, eager_step, seconds_of

#: Exit code of a run that was given a bad config or file.
BAD_INPUT = 2


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="tessera-train",
        description="Train E2Former V2 on energies, forces and stresses. For several ranks: "
        "torchrun --nproc-per-node N -m tessera.train.cli config.yaml",
    )
    parser.add_argument("config", type=Path, help="config.yaml of the run (examples/8-train)")
    parser.add_argument("--resume", action="store_true", help="go on from checkpoint.pt in the output folder")
    parser.add_argument("--until", type=int, metavar="EPOCH", help="stop after this epoch; go on later with --resume")
    parser.add_argument("--time", action="store_true", help="time the kinds of step; train nothing")
    parser.add_argument("--version", action="version", version=f"tessera {tessera.__version__}")
    return parser


def time_steps(run: Run) -> str:
    """Time the kinds of step on the first batch, side by side; returns a table."""
    device = run.model.reference_energies.device
    packs = [pack.to(device) for pack in run.packs(run.order(0)[0])]
    atoms = sum(int(pack.graph.weight.sum()) for pack in packs)
    lines = [f"{atoms} atoms a step, {run.settings.device}, {run.settings.dtype}",
             f"{'step':<19} {'first, s':>9} {'then, s':>9}"]  # fmt: skip
    eager = eager_step(run.model, run.parameters, run.settings.loss)
    compiled = CompiledStep(run.model, run.parameters, run.settings.loss)
    kinds = {"eager": eager, "compiled": compiled}
    if device.type == "cuda":
        kinds |= {f"{name}, recorded": RecordedStep(step, device) for name, step in kinds.items()}
    for name, step in kinds.items():
        started = time.perf_counter()
        for pack in packs:
            float(step(pack)[0].sum())  # waits for a GPU
        first = time.perf_counter() - started
        lines.append(f"{name:<19} {first:>9.3f} {sum(seconds_of(step, pack) for pack in packs):>9.4f}")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        settings = read_settings(arguments.config)
        ranks = Ranks(settings.device)
        logging.getLogger("tessera").setLevel(logging.INFO if ranks.rank == 0 else logging.ERROR)
        try:
            run = Run(settings, ranks)
            if arguments.time:
                sys.stdout.write(time_steps(run))
            else:
                run.prepare_output(resume=arguments.resume)
                run.train(arguments.until)
        finally:
            ranks.close()
    except TrainError as error:
        sys.stderr.write(f"tessera-train: error: {error}\n")
        return BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
