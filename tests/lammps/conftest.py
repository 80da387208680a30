# SPDX-License-Identifier: MIT
import pytest


@pytest.fixture(scope="session")
def demo(artifact):
    """The bundled water model in float64."""
    return artifact("demo", "float64")


@pytest.fixture(scope="session")
def demo_float32(artifact):
    return artifact("demo", "float32")
