# SPDX-License-Identifier: MIT
"""The model that a run starts from, and its description in the public spelling."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
import yaml

from tessera.checkpoint import load_checkpoint
from tessera.model import E2Former, ModelConfig
from tessera.train.errors import TrainError
from tessera.train.settings import ModelSettings, TrainSettings

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def start_model(settings: TrainSettings, found: Sequence[str]) -> tuple[E2Former, dict[str, Any]]:
    """Make the model, and the config.yaml that describes it.

    Args:
        settings: of the run; `seed` draws the weights of a new model.
        found: elements of the data.

    Raises:
        TrainError: a config or checkpoint that cannot be, or data with elements that the model does not have.
    """
    chosen = settings.model
    try:
        if chosen.checkpoint is not None:
            path = settings.path(chosen.checkpoint)
            mapping = _with_repulsion(_read(path.with_name("config.yaml")), chosen.repulsion)
            model = load_checkpoint(path, mapping)
            model = model.select_elements(chosen.elements or [one for one in model.elements if one in found])
        else:
            mapping = public_config(chosen) if chosen.config is None else _read(settings.path(chosen.config))
            mapping = _with_repulsion(mapping, chosen.repulsion)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(settings.seed)
                model = E2Former(ModelConfig.from_yaml(mapping), chosen.elements or mapping.get("elements") or found)
    except (ValueError, OSError) as error:
        raise TrainError(f"model: {error}") from error
    absent = [symbol for symbol in found if symbol not in model.elements]
    if absent:
        raise TrainError(
            f"model.elements: expected all elements of the data, found no {', '.join(absent)} among "
            f"{', '.join(model.elements)}; add them, or leave out the frames"
        )
    mapping = {**mapping, "elements": list(model.elements), "head_name": mapping.get("head_name") or "energy"}
    return model.to(_DTYPES[settings.dtype]).to(settings.device), mapping


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise TrainError(f"model: expected a config at {path}, found none; put config.yaml there")
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def _with_repulsion(mapping: dict[str, Any], wanted: str) -> dict[str, Any]:
    """Set or drop the repulsion of a config; its range stays where the config has one."""
    if wanted == "keep" or (wanted == "zbl" and mapping.get("repulsion") == "zbl"):
        return mapping
    bare = {key: value for key, value in mapping.items() if not key.startswith("repulsion")}
    return bare | ({"repulsion": "zbl"} if wanted == "zbl" else {})


def public_config(chosen: ModelSettings) -> dict[str, Any]:
    """Spell a new network out as the flattened config.yaml (E2Former V2 specification, section 10).

    Raises:
        TrainError: more lengths than the two radial grids of that spelling.
    """
    short = chosen.embedding_cutoff
    longer = sorted({cutoff for cutoff in chosen.stage_cutoffs if cutoff != short})
    if len(longer) > 1 or any(cutoff < short for cutoff in longer):
        raise TrainError(
            f"model.stage_cutoffs: expected embedding_cutoff ({short} Å) and at most one longer length, found "
            f"{list(chosen.stage_cutoffs)}; the layout has two radial grids"
        )

    def irreps(width: int) -> str:
        return "+".join(f"{width}x{degree}e" for degree in range(chosen.lmax + 1))

    return {
        "backbone": "e2former",
        "AutoGradForce": True,
        "softmax": chosen.softmax,
        "embedding_cutoff": short,
        "stage_cutoffs": list(chosen.stage_cutoffs),
        "stage_attn_types": [chosen.attention] * len(chosen.stage_cutoffs),
        "stage_rbf": ["rbf" if cutoff == short else "rbf_long" for cutoff in chosen.stage_cutoffs],
        "backbone_config": {
            "num_layers": len(chosen.stage_cutoffs),
            "irreps_node_embedding": irreps(chosen.channels),
            "irreps_head": irreps(max(chosen.channels // chosen.heads, 1)),
            "attn_scalar_head": chosen.head_scalars,
            "num_attn_heads": chosen.heads,
            "number_of_basis": chosen.num_basis,
            "max_radius": short,
            "max_neighbors": "None",
            "attn_type": chosen.attention,
            "tp_type": chosen.score,
            "avg_degree": chosen.average_degree,
            "long_cutoff_upper": longer[0] if longer else short,
        },
    }


def freeze(model: E2Former, patterns: Sequence[str]) -> list[torch.nn.Parameter]:
    """Switch off the gradients of parameters whose names match a glob pattern; returns the others, in order.

    Raises:
        TrainError: a pattern that matches nothing, or nothing left to train.
    """
    parameters: Mapping[str, torch.nn.Parameter] = dict(model.named_parameters())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in parameters):
            groups = sorted({f"{name.rsplit('.', 1)[0]}.*" for name in parameters})
            raise TrainError(
                f"model.frozen: expected a pattern of parameter names, found '{pattern}', which matches none; they are "
                f"{', '.join(groups)}"
            )
    for name, parameter in parameters.items():
        parameter.requires_grad_(not any(fnmatchcase(name, pattern) for pattern in patterns))
    trained = [parameter for parameter in parameters.values() if parameter.requires_grad]
    if not trained:
        raise TrainError(f"model.frozen: expected parameters to train, found all frozen by {', '.join(patterns)}")
    return trained
