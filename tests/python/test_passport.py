# SPDX-License-Identifier: MIT
"""Passports: what is read from an artifact, and each way in which one is refused."""

import json
import platform
import zipfile
from pathlib import Path

import pytest
import torch
from tiny_artifact import PASSPORT

from tessera import _C
from tessera.commands.info import describe_largest_step

#: An instruction set that this machine lacks, whatever it is.
OTHER_PROCESSOR = "asimd" if platform.machine() == "x86_64" else "avx2"


def write(path: Path, passport: dict | str | None) -> str:
    """Write a package that has metadata but no model: all that reading a passport needs."""
    text = passport if isinstance(passport, str) or passport is None else json.dumps(passport)
    metadata = {"AOTI_DEVICE_KEY": "cpu"} | ({} if text is None else {"tessera": text})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/archive_format", "pt2")
        archive.writestr("model/data/aotinductor/model/a.wrapper_metadata.json", json.dumps(metadata))
    return str(path)


def refusal(path) -> str:
    with pytest.raises(_C.TesseraError) as caught:
        _C.read_passport(str(path))
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_passport_is_read_without_running_model_code(tmp_path):
    passport = _C.read_passport(write(tmp_path / "model.pt2", PASSPORT))
    assert (passport.elements, passport.cutoffs, passport.largest_cutoff) == (["H", "O"], [3.0], 3.0)
    assert (passport.dtype, passport.device, passport.torch_version) == ("float64", "cpu", torch.__version__)
    assert (passport.charge_range, passport.multiplicity_range, passport.uses_charge) == ([-10, 10], [1, 9], True)
    assert (passport.num_layers, passport.num_messages, passport.receptive_radius) == (1, 1, 3.0)
    assert json.loads(passport.json) == PASSPORT


def test_text_in_any_alphabet_survives(tmp_path):
    changed = PASSPORT | {"tessera_version": 'Å "quoted"\\\n\U0001f9ea'}  # json writes the last one as two surrogates
    assert _C.read_passport(write(tmp_path / "model.pt2", changed)).tessera_version == changed["tessera_version"]


def test_a_missing_file_is_refused(tmp_path):
    assert "no such file" in refusal(tmp_path / "absent.pt2")


def test_a_folder_is_refused(tmp_path):
    assert "found a folder" in refusal(tmp_path)


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "model.pt2"
    for content in (b"", b"PK", b"units metal\n" * 40):
        path.write_bytes(content)
        assert f"found another kind of file of {len(content)} bytes; write one with tessera-export" in refusal(path)


def test_a_truncated_artifact_is_refused_wherever_it_was_cut(tmp_path):
    whole = Path(write(tmp_path / "whole.pt2", PASSPORT)).read_bytes()
    path = tmp_path / "model.pt2"
    for length in (5, 100, len(whole) // 2, len(whole) - 22, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert f"found {length} bytes without the record that ends one: the file is truncated" in refusal(path)


def test_a_checkpoint_is_no_artifact(tmp_path):
    torch.save({"model": {}}, tmp_path / "model.pt")
    assert "a checkpoint?" in refusal(tmp_path / "model.pt")


def test_a_package_without_a_passport_is_refused(tmp_path):
    assert "without one; write it with tessera-export" in refusal(write(tmp_path / "model.pt2", None))


@pytest.mark.parametrize("key", list(PASSPORT))
def test_each_missing_key_is_named(tmp_path, key):
    passport = {name: value for name, value in PASSPORT.items() if name != key}
    assert f'expected passport key "{key}", found none' in refusal(write(tmp_path / "model.pt2", passport))


@pytest.mark.parametrize("key", list(PASSPORT["memory"]))
def test_each_missing_key_of_the_memory_is_named(tmp_path, key):
    memory = {name: value for name, value in PASSPORT["memory"].items() if name != key}
    text = refusal(write(tmp_path / "model.pt2", PASSPORT | {"memory": memory}))
    assert f'expected passport key "memory.{key}", found none' in text


def with_memory(**changes):
    return {"memory": PASSPORT["memory"] | changes}


def test_memory_is_predicted_from_counts(tmp_path):
    changed = PASSPORT | {"cutoffs": [3.0, 4.0]} | with_memory(bytes_per_halo_row=[200, 300], bytes_per_edge=[30, 40])
    memory = _C.read_passport(write(tmp_path / "model.pt2", changed)).memory
    assert memory.predict(7, [2, 3], [5, 6]) == 4 + 7 * 1000 + 2 * 200 + 3 * 300 + 5 * 30 + 6 * 40
    assert memory.predict(10**8, [0, 0], [10**10, 0]) == 4 + 10**11 + 3 * 10**11
    with pytest.raises(_C.TesseraError, match="memory of a model of 2 lists: expected as many counts"):
        memory.predict(7, [2], [5, 6])


LARGEST = {"rows": 1000, "halo_rows": [200], "edges": [2**33]}


def test_the_largest_step_is_read_and_may_be_missing(tmp_path):
    """Artifacts for a CPU have none, and neither have those that were exported before there was one."""
    path = tmp_path / "model.pt2"
    assert _C.read_passport(write(path, PASSPORT | {"largest_step": LARGEST})).largest_step == (1000, [200], [2**33])
    assert _C.read_passport(write(path, PASSPORT | {"largest_step": None})).largest_step is None
    assert _C.read_passport(write(path, PASSPORT)).largest_step is None


def test_info_says_how_large_a_step_may_be():
    assert describe_largest_step(None, [3.0]) == "any"
    assert describe_largest_step(LARGEST, [3.0]).startswith("999 atoms, 200 halo rows and 8589934592 edges of 3 Å")


@pytest.mark.parametrize("matmul", ["tf32", "tf32x3"])
def test_tf32_is_accepted_for_a_gpu_alone(tmp_path, matmul):
    """Where no GPU is, the refusal is that of the device, not of the products."""
    changes = {"device": "cuda", "device_capability": "9.0", "matmul": matmul}
    path = write(tmp_path / "model.pt2", PASSPORT | changes)
    if _C.num_gpus() > 0:
        assert _C.read_passport(path).matmul == matmul
    else:
        assert "matmul" not in refusal(path)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"format": 2}, "expected artifact format 1, found 2"),
        ({"format": "one"}, 'expected a number in passport key "format", found string'),
        ({"num_layers": 1.5}, 'expected an integer in passport key "num_layers", found 1.5'),
        ({"elements": ["H", 8]}, 'expected strings in passport key "elements", found number'),
        ({"elements": []}, "expected at least one element"),
        ({"cutoffs": []}, "expected positive, ascending cutoffs"),
        ({"cutoffs": [5.0, 3.0]}, "expected positive, ascending cutoffs"),
        ({"charge_range": [1]}, 'expected [lowest, highest] in passport key "charge_range", found 1 values'),
        ({"dtype": "bfloat16"}, 'expected dtype "float32" or "float64", found "bfloat16"'),
        ({"matmul": "bf16"}, 'expected matmul "highest", "tf32" or "tf32x3", found "bf16"'),
        ({"matmul": "tf32"}, 'expected matmul "highest" for device "cpu", found "tf32"'),
        ({"matmul": "tf32x3"}, 'expected matmul "highest" for device "cpu", found "tf32x3"'),
        ({"recompute": 2}, 'expected an array in passport key "recompute", found number'),
        ({"memory": 12}, 'expected the passport key "memory" to be a JSON object, found number'),
        (with_memory(bytes="1"), 'expected a number in passport key "memory.bytes", found string'),
        (
            with_memory(bytes_per_edge=[1, 2]),
            'expected 1 numbers, one a cutoff, in passport key "memory.bytes_per_edge", found 2',
        ),
        (with_memory(measured=None), 'expected a boolean in passport key "memory.measured", found null'),
        ({"largest_step": 7}, 'expected the passport key "largest_step" to be a JSON object, found number'),
        ({"largest_step": {"rows": 7}}, 'expected passport key "largest_step.halo_rows", found none'),
        (
            {"largest_step": LARGEST | {"rows": 1.5}},
            'counts of at least 2 in passport key "largest_step.rows", found 1.5',
        ),
        ({"largest_step": LARGEST | {"edges": [-1]}}, 'counts of at least 2 in passport key "largest_step.edges"'),
        (
            {"largest_step": LARGEST | {"edges": [2, 2]}},
            'expected 1 numbers, one a cutoff, in passport key "largest_step.edges", found 2',
        ),
        ({"device": "tpu"}, 'expected device "cpu" or "cuda", found "tpu"'),
        ({"device_capability": OTHER_PROCESSOR}, f"found one that needs {OTHER_PROCESSOR} instructions"),
        ({"torch_version": "1.13.1"}, "found one of torch 1.13.1; re-export it with this torch"),
        ({"torch_version": "2.1"}, "found one of torch 2.1; re-export it with this torch"),
    ],
)
def test_a_passport_that_does_not_fit_is_refused(tmp_path, changes, text):
    assert text in refusal(write(tmp_path / "model.pt2", PASSPORT | changes))


def test_an_artifact_for_a_gpu_is_refused_where_there_is_none(tmp_path):
    path = write(tmp_path / "model.pt2", PASSPORT | {"device": "cuda", "device_capability": "9.0"})
    if not _C.HAS_CUDA:
        assert 'expected an artifact for device "cpu", which is all this build runs, found "cuda"' in refusal(path)
    elif _C.num_gpus() == 0:
        assert "expected a CUDA device of compute capability 9.0" in refusal(path)
    else:
        assert _C.read_passport(path).device == "cuda"


@pytest.mark.skipif(_C.num_gpus() == 0, reason="needs a build with -DTESSERA_CUDA=ON and a visible GPU")
@pytest.mark.parametrize("capability", ["1.0", "99.0", "sm_90"])
def test_an_artifact_for_another_kind_of_gpu_is_refused(tmp_path, capability):
    path = write(tmp_path / "model.pt2", PASSPORT | {"device": "cuda", "device_capability": capability})
    assert f"found one for {capability}; re-export it on this machine" in refusal(path)


def test_another_patch_of_the_same_torch_minor_is_accepted(tmp_path):
    minor = ".".join(torch.__version__.split(".")[:2])
    version = f"{minor}.99+cpu"
    assert (
        _C.read_passport(write(tmp_path / "model.pt2", PASSPORT | {"torch_version": version})).torch_version == version
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected a value at position 0, found the end"),
        ('{"format": 1', "expected ',' or '}'"),
        ('{"format": 1} x', "expected the end at position 14, found 'x'"),
        ('{"format": nan}', "expected a value"),
        ('{"format": 1, "format": 1}', "expected a key that was not there before"),
        ('{"a": "\\x"}', "expected an escape"),
        ('{"a": "\\ud800"}', "expected the second half of a surrogate pair"),
        ("[" * 100, "expected at most 64 nested values"),
        ("[1]", "expected the passport to be a JSON object, found array"),
    ],
)
def test_a_passport_that_is_no_json_object_is_refused(tmp_path, text, complaint):
    assert complaint in refusal(write(tmp_path / "model.pt2", text))
