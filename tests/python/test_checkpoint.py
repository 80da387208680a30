# SPDX-License-Identifier: MIT
"""Checkpoints in the public layout: strict, and every refusal names what is wrong."""

import logging

import numpy as np
import pytest
import torch
import yaml

from oracle_data import ROOT, case_graph, oracle_case, oracle_state
from tessera.checkpoint import load_checkpoint, load_state
from tessera.model import energy_and_edge_gradients

MODELS = ROOT / "examples" / "models"
NAME, CASE = "C_first_L1", "C_first_L1__water1"
# A checkpoint rounds weights to float32, as the stored oracle weights are; constants are rebuilt exactly.
ENERGY64 = 1e-10
YAML = {
    "dataset_name_list": "omol25",
    "AutoGradForce": True,
    "backbone_config": {
        "num_layers": 3, "irreps_node_embedding": "16x0e+16x1e", "irreps_head": "3x0e+3x1e", "attn_scalar_head": 8,
        "num_attn_heads": 4, "number_of_basis": 16, "max_radius": 4.5, "max_neighbors": "None",
        "attn_type": "so2-first-order", "tp_type": "QK_alpha",
    },
}  # fmt: skip


@pytest.fixture
def contents():
    """A checkpoint in float32, dead keys included."""
    _, state = oracle_state(NAME)
    model = {key: values.float() if values.is_floating_point() else values for key, values in state.items()}
    model["decoder.decoder.Jd_list.0"] = torch.ones(1, 1)
    model["decoder.embedding.weight"] = torch.zeros(256, 16)
    return {"model": model, "state": {"step": 1}}


@pytest.fixture
def write(tmp_path):
    def write_files(contents, config=None):
        torch.save(contents, tmp_path / "model.pt")
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config or YAML))
        return tmp_path / "model.pt"

    return write_files


def energy(model):
    case = oracle_case(CASE)
    return float(energy_and_edge_gradients(model, case_graph(model, case))[0].sum()), float(case["energy"])


def resize_tables(contents, rows):
    """Give every element table this number of rows, as many as there are kept."""
    for key, table in contents["model"].items():
        if key.endswith(("source_embedding.weight", "target_embedding.weight")):
            resized = torch.zeros(rows, table.shape[1])
            resized[: len(table)] = table[:rows]
            contents["model"][key] = resized


def test_a_checkpoint_gives_the_published_energy(write, contents):
    model = load_checkpoint(write(contents))
    assert model.dtype == torch.float32
    assert not model.training
    found, expected = energy(model.to(torch.float64))
    assert abs(found - expected) < ENERGY64


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_prefixes_of_training_wrappers_are_stripped(write, contents, prefix):
    contents["model"] = {prefix + key: values for key, values in contents["model"].items()}
    found, expected = energy(load_checkpoint(write(contents)).to(torch.float64))
    assert abs(found - expected) < ENERGY64


def test_missing_dead_keys_are_fine(write, contents):
    dead = [key for key in contents["model"] if "Jd_list" in key or "balance" in key or "path_norm" in key
            or key.endswith("rbf.offset") or key == "decoder.embedding.weight"]  # fmt: skip
    assert len(dead) > 3
    for key in dead:
        del contents["model"][key]
    found, expected = energy(load_checkpoint(write(contents)).to(torch.float64))
    assert abs(found - expected) < ENERGY64


def test_a_renamed_key_is_listed_under_both_names(write, contents):
    state = contents["model"]
    state["decoder.decoder.norm_last.affine_bias"] = state.pop("decoder.decoder.norm_final.affine_bias")
    with pytest.raises(ValueError, match=r"1 missing: decoder.decoder.norm_final.affine_bias; "
                                         r"1 unexpected: decoder.decoder.norm_last.affine_bias"):  # fmt: skip
        load_checkpoint(write(contents))


def test_a_key_of_another_shape_is_listed_with_both_shapes(write, contents):
    contents["model"]["decoder.mix_cm.0.weight"] = torch.zeros(16, 30)
    shapes = r"decoder.mix_cm.0.weight \(expected \[16, 32\], found \[16, 30\]\)"
    with pytest.raises(ValueError, match=f"1 of another shape: {shapes}"):
        load_checkpoint(write(contents))


@pytest.mark.parametrize(("depth", "message"), [(4, r"missing: .*blocks.3.\* \(\d+ keys\)"),
                                                (2, r"unexpected: .*blocks.2.\* \(\d+ keys\)")])  # fmt: skip
def test_a_config_of_another_depth_is_refused_with_the_blocks(write, contents, depth, message):
    config = {**YAML, "backbone_config": {**YAML["backbone_config"], "num_layers": depth}}
    with pytest.raises(ValueError, match=rf"expected the keys of {depth} blocks.*\(3 blocks\).*{message}"):
        load_checkpoint(write(contents, config))


def test_a_radial_grid_that_the_config_contradicts_is_refused(write, contents):
    config = {**YAML, "backbone_config": {**YAML["backbone_config"], "max_radius": 5.0}}
    with pytest.raises(
        ValueError, match=r"rbf.offset: expected 16 Gaussians up to 5.0 Å, found 16 values from 0 to 4.5"
    ):
        load_checkpoint(write(contents, config))


def test_a_head_can_be_chosen_and_a_wrong_one_lists_them(write, contents):
    state = contents["model"]
    for key in [key for key in state if key.startswith("head.")]:
        other = state[key].clone()
        other[...] = 0.5
        state[key.replace("omol25", "spice")] = other
    path = write(contents)
    first = energy(load_checkpoint(path, head="omol25").to(torch.float64))
    assert abs(first[0] - first[1]) < ENERGY64
    assert abs(energy(load_checkpoint(path, head="spice").to(torch.float64))[0] - first[0]) > 0.1
    with pytest.raises(ValueError, match=r"expected one of the heads omol25, spice of .*, found 'qm9'"):
        load_checkpoint(path, head="qm9")
    with pytest.raises(ValueError, match="found no choice among several"):
        load_checkpoint(path)
    path = write(contents, {**YAML, "head_name": "omol25"})
    assert energy(load_checkpoint(path).to(torch.float64))[0] == first[0]


def test_without_an_element_list_all_rows_up_to_fermium_are_kept(write, contents):
    resize_tables(contents, 256)
    model = load_checkpoint(write(contents))
    assert len(model.elements) == 100
    assert model.elements[0] == "H"
    assert model.elements[-1] == "Fm"


def test_elements_without_a_row_are_refused(write, contents):
    resize_tables(contents, 36)
    contents["elements"] = ["H", "Xe"]
    with pytest.raises(ValueError, match="expected element tables with rows for Xe, found 36 rows"):
        load_checkpoint(write(contents))


def test_the_checkpoints_own_reference_energies_win_over_the_configs(write, contents):
    contents["elements"] = ["O", "H"]
    contents["reference_energies"] = {"H": -13.5, "O": -2041.25, "C": 1.0}
    model = load_checkpoint(write(contents, {**YAML, "reference_energies": {"H": 1.0, "O": 1.0}}))
    assert model.elements == ("O", "H")
    assert model.reference_energies.tolist() == [-2041.25, -13.5]
    found, expected = energy(model.to(torch.float64))
    assert abs(found - expected - (-2041.25 - 2 * 13.5)) < ENERGY64


def test_a_missing_reference_energy_is_named(write, contents):
    contents |= {"elements": ["O", "H"], "reference_energies": {"O": -2041.25}}
    with pytest.raises(ValueError, match=r"expected a reference energy \(eV\) for each of O, H, found none for H"):
        load_checkpoint(write(contents))


def test_absent_reference_energies_are_logged(write, contents, caplog):
    with caplog.at_level(logging.INFO):
        model = load_checkpoint(write(contents))
    assert not model.reference_energies.any()
    assert "no reference energies" in caplog.text


def test_files_that_are_not_there_or_not_checkpoints_are_refused(tmp_path, write, contents):
    with pytest.raises(FileNotFoundError, match=r"expected a checkpoint at .*absent.pt, found none"):
        load_checkpoint(tmp_path / "absent.pt")
    (tmp_path / "text.pt").write_text("not a checkpoint")
    with pytest.raises(ValueError, match=r"expected a checkpoint that torch.load\(weights_only=True\) reads"):
        load_checkpoint(tmp_path / "text.pt", YAML)
    torch.save({"weights": {}}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"expected \{\"model\": state dict\} in .*found \['weights'\]"):
        load_checkpoint(tmp_path / "other.pt", YAML)
    torch.save({"model": {"a": torch.zeros(1)}}, tmp_path / "foreign.pt")
    with pytest.raises(ValueError, match=r"expected keys head.energy_heads"):
        load_checkpoint(tmp_path / "foreign.pt", YAML)
    path = write(contents)
    path.with_name("config.yaml").unlink()
    with pytest.raises(FileNotFoundError, match=r"expected the model's config at .*config.yaml, found none"):
        load_checkpoint(path)


def test_every_trained_number_of_the_demo_model_is_used():
    model = load_checkpoint(MODELS / "tessera-demo.pt")
    state = torch.load(MODELS / "tessera-demo.pt", weights_only=True)["model"]
    # All numbers are trained (examples/models/README.md), of tables of elements the rows of its seven.
    assert sum(parameter.numel() for parameter in model.parameters()) == 190_001
    table = state["decoder.decoder.edge_deg_embed_dense.target_embedding.weight"]
    np.testing.assert_array_equal(
        model.embedding.receiver_table.detach().numpy(), table[[1, 6, 7, 8, 16, 17, 19]].numpy()
    )


def test_every_variant_of_the_oracle_loads_strictly():
    for name in ("A_first_L2", "F_lsr_cluster", "G_emul3plus1_zero", "I_first_QKdot", "J_first_QKdotS"):
        config, state = oracle_state(name)
        needed = load_state(state, config, elements=("H", "O"))
        assert needed.config == config
        dropped = dict(state)
        del dropped[next(key for key in state if key.endswith("ga.fc_easy.net.6.bias"))]
        with pytest.raises(ValueError, match=r"1 missing: decoder.decoder.blocks.0.ga.fc_easy.net.6.bias"):
            load_state(dropped, config, elements=("H", "O"))
