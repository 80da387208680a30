# SPDX-License-Identifier: MIT
"""The config of a training run, read strictly: an unknown key is refused, with the keys that exist."""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tessera.model.graph import SYMBOLS
from tessera.train.errors import TrainError


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """Where labelled structures are."""

    files: tuple[str, ...]
    """Extended XYZ, plain or .gz; relative names start at the config's folder."""
    validation_files: tuple[str, ...] = ()
    validation_fraction: float = 0.0
    """Share of `files` that is drawn, by seed, and held out."""
    split_key: str | None = None
    """Frames whose comment line says `<split_key>=val` are held out."""
    kind_key: str | None = None
    """Word of the comment line that says what a frame shows, such as `config_type`; for errors by kind."""
    energy_key: str = "energy"
    """eV."""
    forces_key: str = "forces"
    """eV/Å."""
    stress_key: str = "stress"
    """dE/dstrain / volume (ASE's sign: negative diagonal under compression), 3x3 or Voigt."""
    stress_unit: str = "eV/A^3"
    """`eV/A^3` or `GPa`."""


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """The network: a checkpoint to start from, a public config.yaml, or the numbers below."""

    checkpoint: str | None = None
    """model.pt to fine-tune; its config.yaml lies beside it."""
    config: str | None = None
    """Flattened public config.yaml of a new model; replaces the numbers below."""
    frozen: tuple[str, ...] = ()
    """Glob patterns of parameter names that stay as they are, such as `embedding.*` or `blocks.0.*`."""
    elements: tuple[str, ...] = ()
    """Symbols in table order; default: those of the data, or of the checkpoint."""
    lmax: int = 2
    channels: int = 32
    heads: int = 8
    head_scalars: int = 8
    num_basis: int = 64
    embedding_cutoff: float = 4.5
    """Å."""
    stage_cutoffs: tuple[float, ...] = (4.5, 4.5, 6.0)
    """Å, one a stage; at most two different lengths with `embedding_cutoff`, which is the shorter one."""
    attention: str = "zero-order"
    """`zero-order` or `so2-first-order`."""
    score: str = "QK"
    softmax: str = "smooth"
    """`smooth`: energies are C² when a neighbor enters; `exact`: the published normalizer."""
    average_degree: float = 23.01
    """Typical number of neighbors within `embedding_cutoff`."""
    repulsion: str = "keep"
    """`zbl`: screened repulsion of nuclei at short distances, which the network then corrects; `none`; or `keep` what
    `config` or the checkpoint says (none for a new model)."""


@dataclasses.dataclass(frozen=True)
class LossSettings:
    """energy * <p(dE / atoms)> + forces * <p(dF)> + stress * <p(dVirial / atoms)>, virial = stress * volume.

    Means are over the labels of a batch: frames, force components, stress components. p(r) = r², or its Huber form,
    which grows linearly beyond delta.
    """

    energy: float = 10.0
    forces: float = 1.0
    stress: float = 10.0
    kind: str = "huber"
    """`squared` or `huber`."""
    energy_delta: float = 0.01
    """eV per atom."""
    forces_delta: float = 0.5
    """eV/Å."""
    stress_delta: float = 0.05
    """eV per atom."""
    element_forces: dict[str, float] = dataclasses.field(default_factory=dict)
    """Factors on the penalties of some elements' forces, such as `{Cl: 3}` for an ion that few atoms are."""


@dataclasses.dataclass(frozen=True)
class OptimizerSettings:
    """AdamW, its schedule, and the average of the weights."""

    epochs: int = 100
    batch_size: int = 8
    """Frames a step, over all ranks."""
    batch_edges: int = 0
    """Edges (within the longest cutoff) a step, over all ranks; above 0 it replaces `batch_size`, so that steps of
    clusters and of large boxes cost alike."""
    minutes: float = 0.0
    """End after so many minutes, validation included and reading not, wherever the epochs are; the schedule ends then,
    too. 0: no limit."""
    learning_rate: float = 2e-3
    """At the end of the warm-up."""
    warmup_steps: int = 100
    """Steps of linear rise from 0."""
    final_fraction: float = 0.01
    """The cosine ends at this fraction of `learning_rate`."""
    weight_decay: float = 1e-4
    """On matrices only."""
    clip: float = 10.0
    """Longest gradient, all parameters together; 0 does not clip."""
    ema: float = 0.99
    """Decay of the average of the weights, which is what validation and model.pt use; 0 takes the weights."""


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """One training run."""

    data: DataSettings
    model: ModelSettings = ModelSettings()
    loss: LossSettings = LossSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    output: str = "run"
    """Folder for checkpoints, log, plots and model.pt."""
    references: str = "fit"
    """Energies of single elements: `fit` by least squares, or `keep` those of the checkpoint."""
    seed: int = 1
    dtype: str = "float32"
    """Numbers of the network; positions, energies and the loss are float64."""
    device: str = "cpu"
    compile: bool = False
    """Compile the step for one size of batches, which takes minutes once a run; `false` runs it eagerly."""
    record: bool = False
    """On a GPU: record the step, compiled or not, as CUDA graphs, which takes seconds once a run, and replay them."""
    measure_every: int = 1
    """Epochs from one measurement of the held-out frames to the next."""
    folder: Path = Path()
    """Folder of the config, where relative names start; not a key of the file."""

    def path(self, name: str) -> Path:
        """Resolve a name of the config."""
        return self.folder / name


_CHOICES = {
    "data.stress_unit": ("eV/A^3", "GPa"),
    "loss.kind": ("squared", "huber"),
    "references": ("fit", "keep"),
    "dtype": ("float32", "float64"),
    "device": ("cpu", "cuda"),
    "model.softmax": ("smooth", "exact"),
    "model.attention": ("zero-order", "so2-first-order"),
    "model.repulsion": ("keep", "zbl", "none"),
}
_POSITIVE = ("measure_every", "optimizer.epochs", "optimizer.batch_size", "optimizer.learning_rate",
             "loss.energy_delta", "loss.forces_delta", "loss.stress_delta")  # fmt: skip
_NOT_NEGATIVE = ("loss.energy", "loss.forces", "loss.stress", "optimizer.batch_edges", "optimizer.minutes",
                 "optimizer.warmup_steps", "optimizer.weight_decay", "optimizer.clip", "seed")  # fmt: skip
_FRACTIONS = ("data.validation_fraction", "optimizer.ema", "optimizer.final_fraction")


def read_settings(path: Path) -> TrainSettings:
    """Read config.yaml.

    Raises:
        TrainError: no such file, no YAML, an unknown or missing key, or a value that cannot be.
    """
    if not path.is_file():
        raise TrainError(f"expected a config at {path}, found none; give the path of a config.yaml")
    try:
        mapping = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise TrainError(f"expected YAML in {path}, found {error}; correct the file") from error
    return settings_of(mapping, path.parent)


def settings_of(mapping: Any, folder: Path) -> TrainSettings:
    """Check a parsed config; see :func:`read_settings`."""
    settings = dataclasses.replace(_section(TrainSettings, mapping, ""), folder=folder)
    for key, choices in _CHOICES.items():
        if _value(settings, key) not in choices:
            raise TrainError(f"{key}: expected {' or '.join(choices)}, found '{_value(settings, key)}'; choose one")
    for key in (*_POSITIVE, *_NOT_NEGATIVE):
        value = _value(settings, key)
        if not math.isfinite(value) or value < 0 or (key in _POSITIVE and value == 0):
            bound = "a number above 0" if key in _POSITIVE else "a number of at least 0"
            raise TrainError(f"{key}: expected {bound}, found {value}; correct it")
    _check_element_forces(settings.loss.element_forces)
    for key in _FRACTIONS:
        if not 0 <= _value(settings, key) < 1:
            raise TrainError(f"{key}: expected a number from 0 to below 1, found {_value(settings, key)}; correct it")
    if settings.record and settings.device != "cuda":
        raise TrainError(f"record: expected device: cuda for 'true', found device: {settings.device}; choose one")
    if settings.references == "keep" and settings.model.checkpoint is None:
        raise TrainError("references: expected 'fit' for a new model, found 'keep'; there is nothing to keep")
    if settings.model.checkpoint is not None and settings.model.config is not None:
        raise TrainError("model: expected checkpoint or config, found both; the checkpoint brings its config.yaml")
    return settings


def _check_element_forces(factors: Mapping[str, float]) -> None:
    for symbol, factor in factors.items():
        if symbol not in SYMBOLS[1:]:
            raise TrainError(f"loss.element_forces: expected symbols of elements, found '{symbol}'; correct it")
        if not 0 <= factor < math.inf:
            raise TrainError(f"loss.element_forces: expected numbers of at least 0, found {factor}; correct it")


def _value(settings: Any, key: str) -> Any:
    for name in key.split("."):
        settings = getattr(settings, name)
    return settings


def _section(kind: type, mapping: Any, prefix: str) -> Any:
    """Build a dataclass from a mapping, each value of the field's type."""
    where = prefix.rstrip(".") or "config"
    if not isinstance(mapping, Mapping):
        raise TrainError(f"{where}: expected a mapping of keys, found {type(mapping).__name__}; correct the config")
    fields = {field.name: field for field in dataclasses.fields(kind) if field.name != "folder"}
    unknown = sorted(str(key) for key in mapping if key not in fields)
    if unknown:
        raise TrainError(
            f"{where}: expected keys among {', '.join(fields)}, found {', '.join(unknown)}; correct the spelling"
        )
    hints = typing.get_type_hints(kind)
    for name, field in fields.items():
        if field.default is field.default_factory and name not in mapping:  # both are missing
            raise TrainError(f"{where}: expected the key {name}, found {', '.join(map(str, mapping))}; add it")
    return kind(**{name: _cast(hints[name], value, f"{prefix}{name}") for name, value in mapping.items()})


def _cast(hint: Any, value: Any, key: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return _section(hint, value, f"{key}.")
    if isinstance(hint, types.UnionType):
        return None if value is None else _cast(typing.get_args(hint)[0], value, key)
    if typing.get_origin(hint) is dict:
        if not isinstance(value, Mapping):
            raise TrainError(f"{key}: expected a mapping, found {value!r}; correct the config")
        return {str(name): _cast(typing.get_args(hint)[1], one, f"{key}.{name}") for name, one in value.items()}
    if typing.get_origin(hint) is tuple:
        values = value if isinstance(value, list) else [value]
        return tuple(_cast(typing.get_args(hint)[0], one, key) for one in values)
    if hint is float and isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            return float(value)  # YAML reads 1e-3 as text
        except ValueError:
            pass
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise TrainError(f"{key}: expected {hint.__name__}, found {value!r}; correct the config")
    return value
