# SPDX-License-Identifier: MIT
"""Reading of config.yaml: the public flattened spelling and the explicit spelling of stages."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tessera.model.config import AVERAGE_DEGREE, ModelConfig, RepulsionRange, Stage
from tessera.model.elements import check_symbols

logger = logging.getLogger(__name__)

_SCORES = {"QK": "QK", "QK_alpha": "QK", "QKdot_alpha": "QKdot", "QKdotS_alpha": "QKdotS"}
_NO_LIMIT = (None, "None", "none", "null")
_LONG_NEIGHBOR_FACTOR = 2.5  # cap of the long list in units of max_neighbors (specification, section 8)


def read_config(mapping: Mapping[str, Any]) -> ModelConfig:
    """Build a :class:`ModelConfig`; see its `from_yaml`."""
    if not isinstance(mapping, Mapping) or not isinstance(mapping.get("backbone_config"), Mapping):
        raise ValueError(  # noqa: TRY004  (a file's content, not a type mistake of the caller)
            "expected a mapping with the key 'backbone_config', found "
            f"{sorted(mapping) if isinstance(mapping, Mapping) else type(mapping).__name__}; "
            "give the flattened config.yaml of the checkpoint"
        )
    backbone = mapping["backbone_config"]
    _refuse_unsupported(mapping, backbone)
    degrees, channels = _read_irreps("irreps_node_embedding", _need(backbone, "irreps_node_embedding"))
    num_heads = int(_need(backbone, "num_attn_heads"))
    _, head_multiplicity = _read_irreps("irreps_head", _need(backbone, "irreps_head"))
    score, normalizer = _read_score(str(_need(backbone, "tp_type")))
    cap = _read_cap(backbone.get("max_neighbors"))
    cutoff = float(_need(backbone, "max_radius"))
    energies = mapping.get("reference_energies")
    elements = mapping.get("elements")
    return ModelConfig(
        lmax=degrees - 1,
        channels=channels,
        num_heads=num_heads,
        head_scalars=int(_need(backbone, "attn_scalar_head")),
        num_basis=int(_need(backbone, "number_of_basis")),
        out_channels=head_multiplicity * num_heads,
        embedding_cutoff=float(mapping.get("embedding_cutoff", cutoff)),
        embedding_basis_cutoff=cutoff,
        stages=_read_stages(mapping, backbone, cutoff, cap),
        cluster=_read_cluster(backbone, cap),
        max_neighbors=cap,
        score=score,
        normalizer=normalizer,
        softmax=str(mapping.get("softmax", "exact")),
        average_degree=float(backbone.get("avg_degree") or AVERAGE_DEGREE),
        embedding_layer_norm="wolayernorm" not in str(backbone.get("edge_embedtype", "default")),
        elements=check_symbols(elements) if elements else None,
        reference_energies={str(key): float(value) for key, value in energies.items()} if energies else None,
        head=mapping.get("head_name"),
        repulsion=_read_repulsion(mapping),
    )


def _read_repulsion(mapping: Mapping[str, Any]) -> RepulsionRange | None:
    """Read `repulsion: zbl` with `repulsion_inner` and `repulsion_outer`, sums of covalent radii."""
    kind = mapping.get("repulsion")
    ends = {name: mapping[f"repulsion_{name}"] for name in ("inner", "outer") if f"repulsion_{name}" in mapping}
    if kind in _NO_LIMIT:
        if ends:
            raise ValueError(
                f"expected repulsion: zbl beside repulsion_{' and repulsion_'.join(ends)}, found {kind!r}; add it or "
                "drop them"
            )
        return None
    if kind != "zbl":
        raise ValueError(f"repulsion: expected zbl or nothing, found {kind!r}; change the config")
    return RepulsionRange(**{name: float(value) for name, value in ends.items()})


def _need(backbone: Mapping[str, Any], key: str) -> Any:
    if backbone.get(key) is None:
        raise ValueError(f"expected the key backbone_config.{key}, found {sorted(backbone)}; complete the config")
    return backbone[key]


def _refuse_unsupported(mapping: Mapping[str, Any], backbone: Mapping[str, Any]) -> None:
    def refuse(key: str, found: Any, expected: str) -> None:
        raise ValueError(f"{key}: expected {expected}, found {found!r}; this variant of E2Former is not supported")

    if mapping.get("backbone", "e2former") != "e2former":
        refuse("backbone", mapping["backbone"], "'e2former'")
    experts = mapping.get("with_moe", backbone.get("with_moe"))
    if experts not in (*_NO_LIMIT, False):
        refuse("with_moe", experts, "None (the plain energy head)")
    if mapping.get("AutoGradForce", True) is not True:
        refuse("AutoGradForce", mapping["AutoGradForce"], "true (forces are the gradient of the energy)")
    for key, allowed in {"norm_layer": "rms_norm_sh", "ffn_type": "s3", "encoder": "default",
                         "basis_type": "gaussiansmear"}.items():  # fmt: skip
        if backbone.get(key, allowed) != allowed:
            refuse(key, backbone[key], repr(allowed))
    embed = str(backbone.get("edge_embedtype", "default"))
    if not set(re.split(r"[+_\- ]+", embed)) <= {"default", "wolayernorm"}:
        refuse("edge_embedtype", embed, "'default', optionally with 'wolayernorm'")
    cluster = backbone.get("with_cluster", False)
    if cluster not in (*_NO_LIMIT, False) and not set(re.split(r"[+_\- ]+", str(cluster))) <= {"node", "bell"}:
        refuse("with_cluster", cluster, "false or 'node', optionally with 'bell'")


def _read_irreps(key: str, text: Any) -> tuple[int, int]:
    """Return (number of degrees, channels) of e.g. 16x0e+16x1e+16x2e."""
    parts = [re.fullmatch(r"\s*(\d+)x(\d+)[eo]\s*", part) for part in str(text).split("+")]
    if not all(parts) or [int(part[2]) for part in parts] != list(range(len(parts))):
        raise ValueError(f"{key}: expected e.g. '256x0e+256x1e+256x2e', found '{text}'; correct the config")
    widths = {int(part[1]) for part in parts}
    if len(widths) != 1:
        raise ValueError(f"{key}: expected one width for all degrees, found '{text}'; correct the config")
    return len(parts), widths.pop()


def _read_score(text: str) -> tuple[str, str]:
    """Return (score, normalizer) of a tp_type such as QK_alpha+triton (specification, sections 0 and 3.4)."""
    normalizer = next((word for word in ("softplus", "sigmoid") if word in text), "softmax")
    name = re.sub(r"softplus|sigmoid|triton", "", text).strip("+_ ")
    if name not in _SCORES:
        raise ValueError(
            f"tp_type: expected {', '.join(_SCORES)} (with softplus, sigmoid or triton), found '{text}'; "
            "this score is not supported"
        )
    return _SCORES[name], normalizer


def _read_cap(found: Any) -> int | None:
    if found in _NO_LIMIT:
        return None
    cap = int(found)
    if cap < 1:
        raise ValueError(f"max_neighbors: expected a positive number or None, found {found}; correct the config")
    logger.warning(
        "max_neighbors: %d caps the neighbors of an atom: the energy jumps whenever two neighbors swap ranks, so "
        "dynamics do not conserve it. Set max_neighbors: None unless you must reproduce published numbers.",
        cap,
    )
    return cap


def _attention_types(text: str, count: int) -> list[str]:
    """Spell out `A+B`: A for the first half of the blocks, B for the rest."""
    names = [name.strip() for name in text.split("+")]
    for name in names:
        if name not in ("zero-order", "so2-first-order"):
            raise ValueError(
                f"attn_type: expected zero-order or so2-first-order, found '{name}'; no public code defines another "
                "message, so there is nothing to reproduce"
            )
    if len(names) > 2:
        raise ValueError(f"attn_type: expected one type or two joined by +, found '{text}'; use stage_attn_types")
    return [names[0] if index < count // 2 else names[-1] for index in range(count)]


def _read_stages(
    mapping: Mapping[str, Any], backbone: Mapping[str, Any], cutoff: float, cap: int | None
) -> tuple[Stage, ...]:
    count = int(_need(backbone, "num_layers"))
    long_cutoff = float(backbone.get("long_cutoff_upper") or 12.0)
    last_is_long = bool(backbone.get("emulate_3plus1"))
    cutoffs: Sequence[Any] = mapping.get("stage_cutoffs") or [
        long_cutoff if last_is_long and index == count - 1 else cutoff for index in range(count)
    ]
    kinds: Sequence[Any] = mapping.get("stage_attn_types") or _attention_types(str(_need(backbone, "attn_type")), count)
    grids: Sequence[Any] = mapping.get("stage_rbf") or [
        "rbf_long" if last_is_long and index == count - 1 else "rbf" for index in range(count)
    ]
    ends = {"rbf": cutoff, "rbf_long": long_cutoff}
    for key, values in {"stage_cutoffs": cutoffs, "stage_attn_types": kinds, "stage_rbf": grids}.items():
        if len(values) != count:
            raise ValueError(f"{key}: expected {count} entries (num_layers), found {len(values)}; correct the config")
    unknown = sorted({str(grid) for grid in grids} - set(ends))
    if unknown:
        raise ValueError(f"stage_rbf: expected rbf or rbf_long, found {', '.join(unknown)}; correct the config")
    return tuple(
        Stage(cutoff=float(reach), attention=str(kind), basis_cutoff=ends[grid], max_neighbors=cap)
        for reach, kind, grid in zip(cutoffs, kinds, grids, strict=True)
    )


def _read_cluster(backbone: Mapping[str, Any], cap: int | None) -> tuple[Stage, ...]:
    """Long-range blocks of `with_cluster: node` (specification, section 8)."""
    found = backbone.get("with_cluster", False)
    if found in (*_NO_LIMIT, False):
        return ()
    upper = float(backbone.get("long_cutoff_upper") or 12.0)
    lower = backbone.get("long_cutoff_lower")
    stage = Stage(
        cutoff=upper,
        attention="zero-order",
        basis_cutoff=upper,
        minimum_distance=0.1 if lower is None else float(lower),
        drops_hydrogen_senders=True,
        bell_envelope="bell" in str(found),
        max_neighbors=None if cap is None else int(_LONG_NEIGHBOR_FACTOR * cap),
    )
    layers = backbone.get("long_range_layers")
    return (stage,) * (2 if layers is None else int(layers))
