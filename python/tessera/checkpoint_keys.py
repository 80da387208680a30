# SPDX-License-Identifier: MIT
"""Names of the public checkpoint layout and the parameters they stand for (E2Former V2 specification, section 10)."""

import dataclasses
import re

from tessera.model import E2Former, ModelConfig


@dataclasses.dataclass(frozen=True)
class Slot:
    """Where one public tensor goes."""

    name: str
    """Parameter of :class:`E2Former`."""
    network: int | None = None
    """Which of several stacked networks."""
    has_atomic_number_rows: bool = False
    """The public tensor has one row an atomic number."""
    public_shape: tuple[int, ...] | None = None
    """Public shape where it differs from the slot's."""


_DEAD = (
    r"decoder\.embedding\.weight",
    r"decoder\.unifiedtokentoembedding\.(weight|bias)",
    r"decoder\.decoder\.default_node_embedding\.weight",
    r"decoder\.decoder\.heads2basis\.(weight|bias)",
    r"decoder\.decoder\.edge_deg_embed_dense\.(sph\.W|proj\.weight|proj\.bias)",
    r"decoder\.decoder\.Jd_list\.\d+",
    r".*\.expand_index",
    r".*\.balance_degree_weight",
    r".*\.first_order_tp\.so2_tp\.(path_norm|selected_idx|CG_weight)",
    r".*\.ga\.sum_vec",
    r"decoder\.decoder\.rbf(_long)?\.offset",
)
_DEAD_WITH_CLUSTER = r"decoder\.decoder\.norm_final\.affine_(weight|bias)"
HEAD_PATTERN = re.compile(r"head\.energy_heads\.([^.]+)\..*")


def is_dead(key: str, config: ModelConfig) -> bool:
    """Say whether no energy depends on a public key: a constant rebuilt here, or a trainable leftover."""
    if config.cluster and re.fullmatch(_DEAD_WITH_CLUSTER, key):
        return True
    return any(re.fullmatch(pattern, key) for pattern in _DEAD)


def public_slots(model: E2Former, head: str) -> dict[str, Slot]:
    """List every public key that the model needs, with its slot."""
    config = model.config
    slots = {
        "decoder.embedding_charge.weight": Slot("system.charge_table"),
        "decoder.embedding_multiplicity.weight": Slot("system.multiplicity_table"),
    }
    slots |= _linear("decoder.mix_cm.0", "system.mix")
    dense = "decoder.decoder.edge_deg_embed_dense"
    slots[f"{dense}.target_embedding.weight"] = Slot("embedding.receiver_table", has_atomic_number_rows=True)
    slots[f"{dense}.source_embedding.weight"] = Slot("embedding.sender_table", has_atomic_number_rows=True)
    for degree in range(config.lmax + 1):
        slots |= _edge_network(
            f"{dense}.gbf_projs.{degree}", "embedding.network", degree, layer_norm=config.embedding_layer_norm
        )
    for index, stage in enumerate(config.stages):
        slots |= _block(f"decoder.decoder.blocks.{index}", f"blocks.{index}", config, stage.attention)
    if config.cluster:
        slots |= _norm("decoder.decoder.pre_norm_node", "long_range.norm_in")
        slots |= _norm("decoder.decoder.norm_cluster", "long_range.norm_out")
        slots |= _linear("decoder.decoder.final_linear", "long_range.fuse")
        for index, stage in enumerate(config.cluster):
            slots |= _block(
                f"decoder.decoder.long_blocks.{index}", f"long_range.blocks.{index}", config, stage.attention
            )
    else:
        slots |= _norm("decoder.decoder.norm_final", "final_norm")
    for place, layer in enumerate((0, 2, 4)):
        slots |= _linear(f"head.energy_heads.{head}.mlp.{layer}", f"head.layers.{place}")
    return slots


def _linear(public: str, name: str, *, bias: bool = True) -> dict[str, Slot]:
    slots = {f"{public}.weight": Slot(f"{name}.weight")}
    if bias:
        slots[f"{public}.bias"] = Slot(f"{name}.bias")
    return slots


def _norm(public: str, name: str) -> dict[str, Slot]:
    return {f"{public}.affine_weight": Slot(f"{name}.weight"), f"{public}.affine_bias": Slot(f"{name}.bias")}


def _edge_network(public: str, name: str, network: int = 0, *, layer_norm: bool = True) -> dict[str, Slot]:
    places = {"in": 0, "mid": 3, "out": 6} if layer_norm else {"in": 0, "mid": 2, "out": 4}
    slots = {}
    for layer, place in places.items():
        slots[f"{public}.net.{place}.weight"] = Slot(f"{name}.weight_{layer}", network)
        slots[f"{public}.net.{place}.bias"] = Slot(f"{name}.bias_{layer}", network)
    if layer_norm:
        for layer, place in {"in": 1, "mid": 4}.items():
            slots[f"{public}.net.{place}.weight"] = Slot(f"{name}.norm_{layer}.weight", network)
            slots[f"{public}.net.{place}.bias"] = Slot(f"{name}.norm_{layer}.bias", network)
    return slots


def _projection(public: str, name: str, config: ModelConfig) -> dict[str, Slot]:
    slots = {
        f"{public}.weight": Slot(f"{name}.weight"),
        f"{public}.weight2": Slot(f"{name}.partner_weight"),
        f"{public}.bias": Slot(f"{name}.bias", public_shape=(1, 1, config.score_width)),
    }
    for layer, target in {0: "mix", 1: "norm", 3: "out"}.items():
        slots |= _linear(f"{public}.final_linear.{layer}", f"{name}.{target}")
    return slots


def _block(public: str, name: str, config: ModelConfig, attention: str) -> dict[str, Slot]:
    slots = _norm(f"{public}.norm_1", f"{name}.attention_norm")
    slots |= _norm(f"{public}.norm_ffn", f"{name}.feed_forward_norm")
    slots |= _linear(f"{public}.ffn.slinear_1", f"{name}.feed_forward.into")
    slots |= _linear(f"{public}.ffn.gate.gates", f"{name}.feed_forward.gates")
    slots |= _linear(f"{public}.ffn.slinear_2", f"{name}.feed_forward.out")
    return slots | _attention(f"{public}.ga", f"{name}.attention", config, attention)


def _attention(public: str, name: str, config: ModelConfig, attention: str) -> dict[str, Slot]:
    slots = {
        f"{public}.target_embedding.weight": Slot(f"{name}.tables.receiver", has_atomic_number_rows=True),
        f"{public}.source_embedding.weight": Slot(f"{name}.tables.sender", has_atomic_number_rows=True),
    }
    slots |= _projection(f"{public}.query_linear", f"{name}.query", config)
    slots |= _projection(f"{public}.key_linear", f"{name}.key", config)
    slots |= _linear(f"{public}.proj_value", f"{name}.value")
    slots |= _edge_network(f"{public}.fc_easy", f"{name}.gate.network")
    if config.score != "QK":
        slots |= _linear(f"{public}.dot_linear", f"{name}.gate.direction")
    if config.score == "QKdot":
        slots |= _edge_network(f"{public}.rad_func_m0", f"{name}.gate.radial_network")
        slots |= _linear(f"{public}.fc_m0", f"{name}.gate.mix")
    if config.score == "QKdotS":
        for layer, target in {0: "mix_in", 1: "norm", 3: "mix_out"}.items():
            slots |= _linear(f"{public}.direction_linear.{layer}", f"{name}.gate.{target}")
    if attention == "zero-order":
        return slots | _linear(f"{public}.proj_zero", f"{name}.out")
    for degree in range(config.lmax + 1):
        out = f"{public}.first_order_tp.so2_tp.out_linear.{degree}"
        slots |= _linear(out, f"{name}.message.mix.{degree}", bias=False)
    return slots | _linear(f"{public}.proj_first", f"{name}.out")
