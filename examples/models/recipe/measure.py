# SPDX-License-Identifier: MIT
"""Errors of models on held-out frames, by kind of system: metrics.json.

python measure.py model.pt other/model.pt --frames frames.extxyz.gz --output metrics.json --device cuda
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tessera.checkpoint import load_checkpoint
from tessera.train.dataset import Dataset, read_dataset
from tessera.train.measure import errors_by_kind
from tessera.train.settings import DataSettings, TrainSettings


def measure(models: Mapping[str, Path], frames: Sequence[Path], device: str) -> dict[str, dict[str, dict[str, float]]]:
    """Return errors by model and kind of frame: `forces` meV/Å, `energy` meV/atom, `stress` GPa, all root mean square.

    Args:
        models: model.pt beside its config.yaml, by name.
        frames: extended XYZ; those with `split=val` are used, `config_type=` is their kind.
        device: `cpu` or `cuda`.
    """
    names = tuple(str(path.resolve()) for path in frames)
    data = read_dataset(TrainSettings(DataSettings(names, split_key="split", kind_key="config_type")))
    data.training = []
    return measure_frames(models, data, device)


def measure_frames(models: Mapping[str, Path], data: Dataset, device: str) -> dict[str, dict[str, dict[str, float]]]:
    """Return :func:`measure` of the held-out frames of `data`."""
    loaded = {name: load_checkpoint(path).to(device) for name, path in models.items()}
    data.find_neighbors(max(max(model.cutoffs) for model in loaded.values()), quiet=False)
    return {name: errors_by_kind(model, data.validation, data.validation_edges) for name, model in loaded.items()}


def table(metrics: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Lay the force errors out, one line a kind and one column a model, meV/Å."""
    kinds = list(next(iter(metrics.values())))
    lines = [f"{'force RMSE, meV/Å':<20}" + "".join(f"{name[-18:]:>20}" for name in metrics)]
    lines += [
        f"{kind:<20}" + "".join(f"{errors[kind].get('forces', float('nan')):>20.1f}" for errors in metrics.values())
        for kind in kinds
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print the force errors, write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--frames", type=Path, nargs="+", required=True)
    parser.add_argument("--output", type=Path, default=Path("metrics.json"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    metrics = measure({str(path): path for path in arguments.models}, arguments.frames, arguments.device)
    arguments.output.write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    print(table(metrics))


if __name__ == "__main__":
    main()
