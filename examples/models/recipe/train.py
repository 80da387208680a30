# SPDX-License-Identifier: MIT
"""Train the demo model in two stages and measure it: as long as `minutes` of the stages say, and reading.

    python train.py frames.extxyz.gz more.extxyz.gz --output demo --device cuda --record

The start is the bundled model, which this recipe made from the first one that was bundled; `--start` names another. Its
normalizer becomes the smooth one, so that the energy has no steps, and without a repulsion of nuclei it gets one that
reaches no pair of water and salt water (0.7 sums of covalent radii): nothing is unlearned.
What comes out: demo/stage1 and demo/stage2 (tessera-train's files; stage2/model.pt and config.yaml are the model) and
demo/metrics.json with the errors of the start and of each stage on the held-out frames, by kind.
"""

import argparse
import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml
from measure import measure_frames, table

from tessera.train.dataset import Dataset
from tessera.train.errors import TrainError
from tessera.train.ranks import Ranks
from tessera.train.run import Run
from tessera.train.settings import read_settings

HERE = Path(__file__).resolve().parent
STAGES = ("stage1", "stage2")
REPULSION = {"repulsion": "zbl", "repulsion_inner": 0.45, "repulsion_outer": 0.7}
"""Of a start without; ends in sums of covalent radii."""


def write_start(folder: Path, model: Path) -> None:
    """Copy a model, make its normalizer the smooth one, and give it a repulsion if it has none."""
    folder.mkdir(parents=True)
    config = yaml.safe_load(model.with_name("config.yaml").read_text(encoding="utf-8"))
    config = ({} if "repulsion" in config else REPULSION) | config | {"softmax": "smooth"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    shutil.copy(model, folder / "model.pt")


def stage_config(name: str, frames: list[Path], output: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Read a stage's config and fill in where its data, its start and its output are."""
    config = yaml.safe_load((HERE / f"{name}.yaml").read_text(encoding="utf-8"))
    before = ["start", *arguments.stages][arguments.stages.index(name)]
    config["data"]["files"] = [str(path.resolve()) for path in frames]
    config["model"]["checkpoint"] = str(output / before / "model.pt")
    config |= {"output": str(output / name), "device": arguments.device, "record": arguments.record,
               "compile": arguments.compile}  # fmt: skip
    if arguments.epochs:
        config["optimizer"]["epochs"] = arguments.epochs
    if arguments.minutes:
        config["optimizer"]["minutes"] = arguments.minutes[arguments.stages.index(name)]
    if arguments.batch_edges:
        config["optimizer"]["batch_edges"] = arguments.batch_edges
    return config


def train(path: Path, data: Dataset | None) -> Dataset:
    """Run one stage as tessera-train does; returns its frames, which the next one need not read again."""
    settings = read_settings(path)
    run = Run(settings, Ranks(settings.device), data)
    run.prepare_output(resume=False)
    run.train()
    return run.data


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frames", type=Path, nargs="+", help="extended XYZ with split= and config_type=")
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument(
        "--start", type=Path, default=HERE.parent / "tessera-demo.pt", help="checkpoint beside its config.yaml"
    )
    parser.add_argument("--epochs", type=int, help="end each stage after so many epochs, if the clock does not before")
    parser.add_argument("--minutes", type=float, nargs="+", help="of each stage, instead of its config's")
    parser.add_argument("--batch-edges", type=int, help="edges a step, instead of those of the configs")
    parser.add_argument("--record", action="store_true", help="on a GPU: replay the step as CUDA graphs")
    parser.add_argument("--compile", action="store_true", help="compile the step: minutes a stage, then faster steps")
    parser.add_argument("--stages", choices=STAGES, nargs="+", default=STAGES, help="both, or one alone")
    return parser


def main() -> int:
    """Run both stages and the measurements; returns the exit code."""
    parser = build_parser()
    arguments = parser.parse_args()
    stages, minutes = arguments.stages, arguments.minutes
    if [name for name in STAGES if name in stages] != list(stages):
        parser.error(f"--stages: expected some of {', '.join(STAGES)} in this order, found {', '.join(stages)}")
    if minutes and len(minutes) != len(stages):
        parser.error(f"--minutes: expected one number for each of {', '.join(stages)}, found {len(minutes)}")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("tessera").setLevel(logging.INFO)
    output = arguments.output.resolve()
    if output.exists():
        sys.stderr.write(f"train.py: error: expected a new folder for --output, found {output}; name another\n")
        return 2
    write_start(output / "start", arguments.start)
    data: Dataset | None = None
    for name in stages:
        path = output / f"{name}.yaml"
        config = stage_config(name, arguments.frames, output, arguments)
        path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        try:
            data = train(path, data)
        except TrainError as error:
            sys.stderr.write(f"train.py: error: {error}\n")
            return 2
    models = {name: output / name / "model.pt" for name in ("start", *stages)}
    metrics = measure_frames(models, data, arguments.device)
    print(table(metrics))
    (output / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
