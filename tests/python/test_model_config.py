# SPDX-License-Identifier: MIT
"""Reading of config.yaml: both spellings of stages, every option, and refusals that name the key."""

import copy
import logging

import pytest
import yaml

from oracle_data import ROOT
from tessera.model import ModelConfig

PUBLIC = {
    "backbone": "e2former",
    "dataset_name_list": "omol25",
    "AutoGradForce": True,
    "backbone_config": {
        "name": "e2former", "encoder": "default", "num_layers": 4, "irreps_node_embedding": "16x0e+16x1e+16x2e",
        "irreps_head": "2x0e+2x1e+2x2e", "attn_scalar_head": 4, "num_attn_heads": 8, "number_of_basis": 32,
        "max_radius": 5.0, "max_neighbors": "None", "basis_type": "gaussiansmear", "norm_layer": "rms_norm_sh",
        "attn_type": "so2-first-order", "tp_type": "QK_alpha", "edge_embedtype": "default", "ffn_type": "s3",
        "with_cluster": False,
    },
}  # fmt: skip


def read(**changes):
    """The public config with changes; keys that the backbone has go there, others to the top."""
    mapping = copy.deepcopy(PUBLIC)
    top = ("stage_cutoffs", "stage_attn_types", "stage_rbf", "embedding_cutoff", "softmax", "with_moe", "AutoGradForce",
           "backbone", "head_name", "elements", "reference_energies")  # fmt: skip
    for key, value in changes.items():
        (mapping if key in top else mapping["backbone_config"])[key] = value
    return ModelConfig.from_yaml(mapping)


def test_the_public_spelling_gives_equal_blocks():
    config = read()
    assert (config.lmax, config.channels, config.num_heads, config.head_scalars) == (2, 16, 8, 4)
    assert config.out_channels == 16
    assert config.cutoffs == (5.0,)
    assert config.receptive_radius == 25.0
    assert config.average_degree == 23.01
    assert [stage.attention for stage in config.stages] == ["so2-first-order"] * 4


def test_the_explicit_spelling_of_stages_wins():
    config = ModelConfig.from_yaml(yaml.safe_load((ROOT / "examples" / "models" / "config.yaml").read_text()))
    assert [stage.cutoff for stage in config.stages] == [4.5, 4.5, 6.0]
    assert [stage.basis_cutoff for stage in config.stages] == [4.5, 4.5, 6.0]
    assert {stage.attention for stage in config.stages} == {"zero-order"}
    assert config.elements == ("H", "C", "N", "O", "S", "Cl", "K")
    assert config.reference_energies["K"] == -0.8142673504027398


def test_the_papers_stack_reaches_28_angstrom():
    config = read(emulate_3plus1=True, long_cutoff_upper=8.0)
    assert [stage.cutoff for stage in config.stages] == [5.0, 5.0, 5.0, 8.0]
    assert config.stages[3].basis_cutoff == 8.0
    assert config.cutoffs == (5.0, 8.0)
    assert config.receptive_radius == 28.0


def test_two_joined_attention_types_share_the_blocks():
    kinds = [stage.attention for stage in read(attn_type="so2-first-order+zero-order", num_layers=5).stages]
    assert kinds == ["so2-first-order"] * 2 + ["zero-order"] * 3


@pytest.mark.parametrize(
    ("text", "score", "normalizer"),
    [("QK", "QK", "softmax"), ("QK_alpha+triton", "QK", "softmax"), ("QKdot_alpha+triton", "QKdot", "softmax"),
     ("QKdotS_alpha", "QKdotS", "softmax"), ("QK_alpha+softplus", "QK", "softplus"),
     ("QKdot_alpha_sigmoid", "QKdot", "sigmoid")],
)  # fmt: skip
def test_the_score_type_is_read_from_tp_type(text, score, normalizer):
    config = read(tp_type=text)
    assert (config.score, config.normalizer) == (score, normalizer)


def test_the_cluster_option_adds_long_blocks_without_hydrogen_senders():
    config = read(with_cluster="node+bell", long_cutoff_upper=8.0, long_cutoff_lower=0.2, max_neighbors=20)
    assert len(config.cluster) == 2
    stage = config.cluster[0]
    assert (stage.cutoff, stage.minimum_distance, stage.attention) == (8.0, 0.2, "zero-order")
    assert stage.drops_hydrogen_senders
    assert stage.bell_envelope
    assert stage.max_neighbors == 50
    assert config.cutoffs == (5.0, 8.0)
    assert not read(with_cluster="node").cluster[0].bell_envelope
    assert read(with_cluster="node").cluster[0].cutoff == 12.0


def test_a_neighbor_cap_is_kept_and_warned_about(caplog):
    with caplog.at_level(logging.WARNING):
        config = read(max_neighbors=32)
    assert {stage.max_neighbors for stage in config.stages} == {32}
    assert "the energy jumps whenever two neighbors swap ranks" in caplog.text


def test_no_cap_means_no_warning(caplog):
    with caplog.at_level(logging.WARNING):
        assert read().max_neighbors is None
    assert not caplog.text


def test_small_options_are_read():
    assert read(softmax="smooth").softmax == "smooth"
    assert read().softmax == "exact"
    assert not read(edge_embedtype="default_wolayernorm").embedding_layer_norm
    assert read(avg_degree=40.0).average_degree == 40.0
    assert read(head_name="spice").head == "spice"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"with_moe": "escn"}, r"with_moe: expected None .*, found 'escn'"),
        ({"AutoGradForce": False}, r"AutoGradForce: expected true .*, found False"),
        ({"norm_layer": "layer_norm"}, "norm_layer: expected 'rms_norm_sh', found 'layer_norm'"),
        ({"ffn_type": "grid"}, "ffn_type: expected 's3', found 'grid'"),
        ({"encoder": "transformer"}, "encoder: expected 'default', found 'transformer'"),
        ({"basis_type": "bessel"}, "basis_type: expected 'gaussiansmear', found 'bessel'"),
        ({"edge_embedtype": "eqv2"}, "edge_embedtype: expected 'default'.*found 'eqv2'"),
        ({"with_cluster": "atom"}, "with_cluster: expected false or 'node'.*found 'atom'"),
        ({"attn_type": "so2-zero-order"}, "attn_type: .*found 'so2-zero-order'"),
        ({"attn_type": "zero-order+zero-order+zero-order"}, "attn_type: expected one type or two"),
        ({"tp_type": "QKV"}, "tp_type: .*found 'QKV'"),
        ({"irreps_node_embedding": "16x0e+16x1e+16x2e+16x3e"}, "lmax: expected 1 or 2, found 3"),
        ({"irreps_node_embedding": "16x0e+8x1e"}, "irreps_node_embedding: expected one width"),
        ({"irreps_node_embedding": "sixteen"}, "irreps_node_embedding: expected e.g."),
        ({"num_attn_heads": 5}, "expected channels to be a multiple of num_attn_heads, found 16 and 5"),
        ({"max_radius": -1.0}, "expected positive cutoffs"),
        ({"max_radius": None}, "expected the key backbone_config.max_radius"),
        ({"max_neighbors": 0}, "max_neighbors: expected a positive number or None, found 0"),
        ({"number_of_basis": 1}, "number_of_basis: expected at least 2 Gaussians, found 1"),
        ({"stage_cutoffs": [5.0, 5.0]}, r"stage_cutoffs: expected 4 entries \(num_layers\), found 2"),
        ({"stage_rbf": ["rbf", "rbf", "rbf", "bessel"]}, "stage_rbf: expected rbf or rbf_long, found bessel"),
        ({"stage_attn_types": ["zero-order", "x", "x", "x"]}, "attn_type: .*found 'x'"),
        ({"softmax": "hard"}, "softmax: expected exact or smooth, found 'hard'"),
        ({"backbone": "equiformer"}, "backbone: expected 'e2former', found 'equiformer'"),
        ({"elements": ["H", "Qq"]}, "found 'Qq'"),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items())[:50] if isinstance(value, dict) else "",
)
def test_what_is_not_supported_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        read(**change)


@pytest.mark.parametrize("mapping", [{}, {"backbone_config": 3}, None, {"num_layers": 4}])
def test_a_file_that_is_no_config_is_refused(mapping):
    with pytest.raises(ValueError, match="expected a mapping with the key 'backbone_config'"):
        ModelConfig.from_yaml(mapping)
