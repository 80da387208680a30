# SPDX-License-Identifier: MIT
"""`tessera doctor` says of the compiler what `tessera-export` would."""

import shutil
from pathlib import Path

from tessera.commands import doctor


def test_a_fit_compiler_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "g++")
    finding = doctor.check_compiler()
    assert finding.is_ok
    assert finding.text == shutil.which("g++")


def test_an_unfit_compiler_is_missing_with_advice(monkeypatch, tmp_path: Path):
    compiler = tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} -static-libstdc++ "$@"\n', encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    finding = doctor.check_compiler()
    assert not finding.is_ok
    assert f"found that those of {compiler} ask for none" in finding.text
    assert finding.advice == "set CXX to another (CXX=/usr/bin/g++); only tessera-export needs it"


def test_no_compiler_is_missing_with_advice(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    finding = doctor.check_compiler()
    assert finding.text == "expected no-such-compiler on PATH, found none"
    assert "apt-get install g++" in finding.advice
