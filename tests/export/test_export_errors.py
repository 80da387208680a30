# SPDX-License-Identifier: MIT
"""Bad input to tessera-export: a message that names expected and found, exit code 2, no file."""

import shutil
from pathlib import Path

import pytest
import torch
import yaml

from exported import DEMO
from tessera_export import cli
from tessera_export.errors import ExportError
from tessera_export.package import cuda_capability


@pytest.fixture
def demo() -> dict:
    return torch.load(DEMO / "tessera-demo.pt", weights_only=True)


def export(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as stop:
        code = stop.code
    return code, capsys.readouterr().err


def refused(capsys: pytest.CaptureFixture[str], output: Path, *words: str | Path) -> str:
    code, text = export(capsys, *words, "-o", output)
    assert code == 2
    assert not output.exists()
    return text


def test_a_missing_checkpoint_is_named(capsys, tmp_path: Path) -> None:
    assert "absent.pt: no such file" in refused(capsys, tmp_path / "m.pt2", tmp_path / "absent.pt")


def test_a_missing_config_is_named(capsys, tmp_path: Path) -> None:
    absent = tmp_path / "absent.yaml"
    assert "absent.yaml: no such file" in refused(capsys, tmp_path / "m.pt2", DEMO / "tessera-demo.pt", "-c", absent)


def test_a_missing_output_folder_is_named_before_any_work(capsys, tmp_path: Path) -> None:
    text = refused(capsys, tmp_path / "nowhere" / "m.pt2", DEMO / "tessera-demo.pt")
    assert "nowhere does not exist" in text


def test_an_output_of_another_kind_is_refused(capsys, tmp_path: Path) -> None:
    assert "ends in .pt2" in refused(capsys, tmp_path / "model.so", DEMO / "tessera-demo.pt")


def test_an_unknown_dtype_lists_the_known_ones(capsys, tmp_path: Path) -> None:
    text = refused(capsys, tmp_path / "m.pt2", DEMO / "tessera-demo.pt", "--dtype", "float16")
    assert "float16" in text
    assert "float32" in text
    assert "float64" in text


@pytest.mark.parametrize("elements", ["H,Xx", "h,O", "CL", ","])
def test_unknown_elements_are_named_beside_those_of_the_checkpoint(capsys, tmp_path: Path, elements: str) -> None:
    text = refused(capsys, tmp_path / "m.pt2", DEMO / "tessera-demo.pt", "--elements", elements)
    assert elements in text
    assert "H, C, N, O, S, Cl, K" in text


def test_an_element_named_twice_is_refused(capsys, tmp_path: Path) -> None:
    assert "twice" in refused(capsys, tmp_path / "m.pt2", DEMO / "tessera-demo.pt", "--elements", "H,O,H")


def test_a_renamed_key_is_listed(capsys, tmp_path: Path, demo: dict) -> None:
    key = "decoder.decoder.blocks.0.ga.proj_value.weight"
    demo["model"][key + "_renamed"] = demo["model"].pop(key)
    torch.save(demo, tmp_path / "model.pt")
    text = refused(capsys, tmp_path / "m.pt2", tmp_path / "model.pt", "-c", DEMO / "config.yaml")
    assert f"{key}_renamed" in text
    assert text.count(key) >= 2  # missing, and unexpected under its new name


def test_a_config_of_another_depth_is_refused(capsys, tmp_path: Path) -> None:
    config = yaml.safe_load((DEMO / "config.yaml").read_text())
    for key in ("stage_cutoffs", "stage_attn_types", "stage_rbf"):
        config[key] = config[key][:2]
    config["backbone_config"]["num_layers"] = 2
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    assert "blocks.2" in refused(capsys, tmp_path / "m.pt2", DEMO / "tessera-demo.pt", "-c", path)


def test_an_unknown_head_lists_the_heads(capsys, tmp_path: Path) -> None:
    assert "omol25" in refused(capsys, tmp_path / "m.pt2", DEMO / "tessera-demo.pt", "--head", "other")


def test_a_file_that_is_no_checkpoint_is_refused(capsys, tmp_path: Path) -> None:
    garbage = tmp_path / "model.pt"
    garbage.write_bytes(b"not a checkpoint")
    text = refused(capsys, tmp_path / "m.pt2", garbage, "-c", DEMO / "config.yaml")
    assert "model.pt" in text
    assert "Traceback" not in text


def test_a_missing_compiler_is_named_before_any_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    text = refused(capsys, tmp_path / "m.pt2", DEMO / "tessera-demo.pt")
    assert "expected no-such-compiler on PATH" in text


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("-static-libstdc++", "expected one whose programs ask for the shared C++ library (libstdc++.so)"),
        ("--no-such-option", "expected one that links a shared library"),
    ],
)
def test_an_unfit_compiler_is_named_before_any_work(capsys, tmp_path: Path, monkeypatch, option, complaint) -> None:
    """What the first compiles does not load beside torch, and its text says nothing of the cause."""
    compiler = tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} {option} "$@"\n', encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    text = refused(capsys, tmp_path / "m.pt2", DEMO / "tessera-demo.pt")
    assert f"C++ compiler: {complaint}" in text
    assert f"found that those of {compiler} ask for none" in text or f"found that {compiler} does not" in text
    assert "set CXX to another" in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_an_export_for_a_gpu_needs_one(capsys, tmp_path: Path) -> None:
    text = refused(capsys, tmp_path / "m.pt2", DEMO / "tessera-demo.pt", "--device", "cuda")
    assert "--device cuda: expected a GPU, on which the artifact is compiled and verified, found " in text
    assert "use --device cpu" in text


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--matmul", "tf32x3"], "--matmul tf32x3: expected --device cuda, whose tensor cores have that format"),
        (["--matmul", "tf32"], "--matmul tf32: expected --device cuda, whose tensor cores have that format, found cpu"),
        (["--sm", "90"], "--sm 90: expected --device cuda, found cpu"),
        (["--recompute", "0"], "--recompute 0: expected a positive number of MiB an atom"),
        (["--recompute", "nan"], "--recompute nan: expected a positive number of MiB an atom"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], complaint: str
) -> None:
    assert complaint in refused(capsys, tmp_path / "m.pt2", DEMO / "tessera-demo.pt", *words)


def test_an_unknown_precision_lists_the_known_ones(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = refused(capsys, tmp_path / "m.pt2", DEMO / "tessera-demo.pt", "--matmul", "bf16")
    assert "bf16" in text
    assert "highest" in text
    assert "tf32" in text


def test_tf32_is_for_float32(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--device", "cuda", "--matmul", "tf32", "--dtype", "float64")
    text = refused(capsys, tmp_path / "m.pt2", DEMO / "tessera-demo.pt", *words)
    assert "--matmul tf32: expected --dtype float32, found float64" in text


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch report a GPU of compute capability 9.0."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a Hopper")


@pytest.mark.usefixtures("hopper")
def test_the_capability_is_that_of_the_device_unless_another_is_asked_for() -> None:
    assert cuda_capability() == cuda_capability("90") == "9.0"


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(("wanted", "spelt"), [("80", "8.0"), ("120", "12.0")])
def test_the_capability_of_another_device_is_refused_with_both(wanted: str, spelt: str) -> None:
    with pytest.raises(ExportError) as refusal:
        cuda_capability(wanted)
    assert f"--sm {wanted}: expected the compute capability of this device (a Hopper: 9.0)" in str(refusal.value)
    assert f"found {spelt}" in str(refusal.value)


@pytest.mark.parametrize("wanted", ["9.0", "sm_90", "9", ""])
def test_a_capability_is_two_or_three_digits(wanted: str) -> None:
    with pytest.raises(ExportError, match="expected a number such as 90"):
        cuda_capability(wanted)
