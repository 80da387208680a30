# SPDX-License-Identifier: MIT
"""Reading of checkpoints in the public layout, strictly."""

import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from tessera.checkpoint_keys import HEAD_PATTERN, Slot, is_dead, public_slots
from tessera.model import E2Former, ModelConfig
from tessera.model.elements import ATOMIC_NUMBERS, SYMBOLS, check_symbols
from tessera.model.geometry import radial_centers
from tessera.model.layers import DegreeNorm

logger = logging.getLogger(__name__)

FLOAT32_ROUNDING = 1e-6
"""Relative difference allowed between a stored constant and the exact one: a few roundings of float32."""
_PREFIXES = ("module.", "_orig_mod.")
_LISTED = 12  # names shown in an error before it only counts


def load_checkpoint(
    path: str | os.PathLike[str],
    config: ModelConfig | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    head: str | None = None,
) -> E2Former:
    """Load a model from a checkpoint in the public layout (E2Former V2 specification, section 10).

    The file holds {"model": state dict}, optionally `elements` and `reference_energies` (eV by symbol). Elements come
    from there, else from the config, else every row of the element tables up to fermium is kept; reference energies
    likewise, else they are zero, which is logged.

    Args:
        path: what `torch.save` wrote; it is read with `weights_only=True`.
        config: a config, a parsed or unparsed config.yaml; None reads config.yaml beside the checkpoint.
        head: energy head; None takes the config's `head_name`, or the only head.

    Returns:
        The model in evaluation mode, in the checkpoint's dtype.

    Raises:
        FileNotFoundError: no checkpoint or no config there.
        ValueError: not a checkpoint, or keys that are missing, unexpected or of another shape; all are listed.
    """
    path = Path(path)
    contents = _read_file(path)
    settings = config if isinstance(config, ModelConfig) else ModelConfig.from_yaml(_read_config(path, config))
    state = _strip_prefixes(contents["model"], path)
    return load_state(state, settings, head=head, elements=contents.get("elements"),
                      reference_energies=contents.get("reference_energies"), source=str(path))  # fmt: skip


def load_state(
    state: Mapping[str, Tensor],
    config: ModelConfig,
    *,
    head: str | None = None,
    elements: Iterable[str] | None = None,
    reference_energies: Mapping[str, float] | None = None,
    source: str = "state dict",
) -> E2Former:
    """Build a model from a state dict with public key names; see :func:`load_checkpoint`."""
    chosen = _choose_head(state, head or config.head, source)
    symbols = _choose_elements(state, elements or config.elements)
    model = E2Former(config, symbols)
    slots = public_slots(model, chosen)
    parameters = dict(model.named_parameters())
    _check_keys(state, slots, config, parameters, source)
    _check_constants(state, config, source)
    model.to(state["decoder.mix_cm.0.weight"].dtype)
    parameters = dict(model.named_parameters())
    rows = torch.tensor([ATOMIC_NUMBERS[symbol] for symbol in symbols])
    with torch.no_grad():
        for key, slot in slots.items():
            target = parameters[slot.name] if slot.network is None else parameters[slot.name][slot.network]
            values = state[key][rows] if slot.has_atomic_number_rows else state[key]
            target.copy_(values.reshape(target.shape))
    _set_reference_energies(model, reference_energies or config.reference_energies, source)
    return model.eval()


def _read_file(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"expected a checkpoint at {path}, found none; check the path")
    try:
        contents = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(
            f"expected a checkpoint that torch.load(weights_only=True) reads, found {path}, which fails with: {error}; "
            'save it again as torch.save({"model": model.state_dict()}, path)'
        ) from error
    if not isinstance(contents, Mapping) or not isinstance(contents.get("model"), Mapping):
        found = sorted(map(str, contents))[:_LISTED] if isinstance(contents, Mapping) else type(contents).__name__
        raise ValueError(  # noqa: TRY004  (a file's content, not a type mistake of the caller)
            f'expected {{"model": state dict}} in {path}, found {found}; save the state dict under "model"'
        )
    return contents


def _read_config(path: Path, config: Mapping[str, Any] | str | os.PathLike[str] | None) -> Mapping[str, Any]:
    if isinstance(config, Mapping):
        return config
    file = path.with_name("config.yaml") if config is None else Path(config)
    if not file.is_file():
        raise FileNotFoundError(f"expected the model's config at {file}, found none; put config.yaml there or name it")
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"expected YAML in {file}, found {error}; correct the file") from error


def _strip_prefixes(state: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Remove what wrappers of training prepend."""
    stripped = {}
    for name, values in state.items():
        key = str(name)
        while key.startswith(_PREFIXES):
            key = key.removeprefix(next(prefix for prefix in _PREFIXES if key.startswith(prefix)))
        if key in stripped:
            raise ValueError(f"expected each key once in {path}, found '{key}' twice, with and without a prefix")
        stripped[key] = values
    return stripped


def _choose_head(state: Mapping[str, Tensor], wanted: str | None, source: str) -> str:
    heads = sorted({match[1] for match in map(HEAD_PATTERN.fullmatch, state) if match})
    if not heads:
        raise ValueError(f"expected keys head.energy_heads.* in {source}, found none; is this an E2Former checkpoint?")
    if wanted is None and len(heads) == 1:
        return heads[0]
    if wanted not in heads:
        asked = "no choice among several" if wanted is None else f"'{wanted}'"
        raise ValueError(f"expected one of the heads {', '.join(heads)} of {source}, found {asked}; name one of them")
    return wanted


def _choose_elements(state: Mapping[str, Tensor], wanted: Iterable[str] | None) -> tuple[str, ...]:
    tables = [values for key, values in state.items() if re.search(r"\.(source|target)_embedding\.weight$", key)]
    rows = min((len(table) for table in tables), default=len(SYMBOLS))
    if wanted is None:
        return SYMBOLS[1 : min(rows, len(SYMBOLS))]
    symbols = check_symbols(wanted)
    absent = [symbol for symbol in symbols if ATOMIC_NUMBERS[symbol] >= rows]
    if absent:
        raise ValueError(
            f"expected element tables with rows for {', '.join(absent)}, found {rows} rows; correct `elements`"
        )
    return symbols


def _check_keys(
    state: Mapping[str, Tensor], slots: Mapping[str, Slot], config: ModelConfig, parameters: Mapping[str, Tensor],
    source: str,
) -> None:  # fmt: skip
    """Refuse a state dict that is not exactly this model's, and say everything that is wrong with it."""
    missing = [key for key in slots if key not in state]
    unexpected = [
        key for key in state if key not in slots and not is_dead(key, config) and not HEAD_PATTERN.fullmatch(key)
    ]
    misshaped = []
    for key, slot in slots.items():
        if key not in state:
            continue
        expected = _expected_shape(slot, parameters)
        found = tuple(state[key].shape)
        if slot.has_atomic_number_rows:
            expected, found = expected[1:], found[1:]
        if found != expected:
            misshaped.append(f"{key} (expected {list(expected)}, found {list(found)})")
    problems = [
        f"{len(names)} {what}: {_shorten(names)}"
        for what, names in {"missing": missing, "unexpected": unexpected, "of another shape": misshaped}.items()
        if names
    ]
    if problems:
        blocks = {match[1] for match in (re.match(r"decoder\.decoder\.((?:long_)?blocks\.\d+)\.", key)
                                         for key in state) if match}  # fmt: skip
        raise ValueError(
            f"expected the keys of {len(config.stages)} blocks and {len(config.cluster)} long blocks, found in "
            f"{source} ({len(blocks)} blocks): {'; '.join(problems)}. Give the config.yaml that "
            "belongs to this checkpoint, or undo the renaming"
        )


def _expected_shape(slot: Slot, parameters: Mapping[str, Tensor]) -> tuple[int, ...]:
    if slot.public_shape is not None:
        return slot.public_shape
    shape = tuple(parameters[slot.name].shape)
    return shape if slot.network is None else shape[1:]


def _shorten(names: list[str]) -> str:
    """Join names; whole blocks are named once."""
    grouped: dict[str, list[str]] = {}
    for name in names:
        match = re.match(r"(decoder\.decoder\.(?:long_)?blocks\.\d+)\.", name)
        grouped.setdefault(match[1] if match else name, []).append(name)
    shown = []
    for group, members in grouped.items():
        shown += members if len(members) <= 3 else [f"{group}.* ({len(members)} keys)"]
    rest = len(shown) - _LISTED
    return ", ".join(shown[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _check_constants(state: Mapping[str, Tensor], config: ModelConfig, source: str) -> None:
    """Compare stored constants with the exact ones that replace them."""
    long = {stage.basis_cutoff for stage in config.all_stages} - {config.embedding_basis_cutoff}
    grids = {"decoder.decoder.rbf.offset": config.embedding_basis_cutoff}
    if len(long) == 1:
        grids["decoder.decoder.rbf_long.offset"] = long.pop()
    balance = DegreeNorm(config.lmax, 1).balance
    for key, stored in state.items():
        if key in grids:
            exact = radial_centers(grids[key], config.num_basis)
            meaning = f"{config.num_basis} Gaussians up to {grids[key]} Å"
        elif key.endswith(".balance_degree_weight"):
            exact, meaning = balance, "equal weight of all degrees"
        else:
            continue
        found = stored.to(torch.float64).flatten()
        tolerance = FLOAT32_ROUNDING * float(exact.abs().max())
        if found.shape != exact.shape or float((found - exact).abs().max()) > tolerance:
            raise ValueError(
                f"{key}: expected {meaning}, found {len(found)} values from {found.min():g} to {found.max():g} in "
                f"{source}; give the config.yaml that belongs to this checkpoint"
            )


def _set_reference_energies(model: E2Former, energies: Mapping[str, float] | None, source: str) -> None:
    if energies is None:
        logger.info("%s has no reference energies: energies are the network's alone", source)
        return
    absent = [symbol for symbol in model.elements if symbol not in energies]
    if absent:
        raise ValueError(
            f"expected a reference energy (eV) for each of {', '.join(model.elements)}, found none for "
            f"{', '.join(absent)} in {source}; complete `reference_energies` or name fewer `elements`"
        )
    table = [float(energies[symbol]) for symbol in model.elements]
    model.reference_energies.copy_(torch.tensor(table, dtype=torch.float64))
