# SPDX-License-Identifier: MIT
"""What a model is made of, read from the public flattened config.yaml."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

AVERAGE_DEGREE = 23.01
"""Divisor of the edge-degree embedding where the config names none (E2Former V2 specification, section 2)."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """One round of message passing: an attention block and the neighbors it sees."""

    cutoff: float
    """Å; also where the envelope ends."""
    attention: str
    """`zero-order` or `so2-first-order`."""
    basis_cutoff: float
    """Å, end of the radial grid."""
    minimum_distance: float = 1e-4
    """Å; shorter edges are no edges."""
    drops_hydrogen_senders: bool = False
    bell_envelope: bool = False
    max_neighbors: int | None = None


@dataclasses.dataclass(frozen=True)
class RepulsionRange:
    """Where the repulsion acts, in sums of the two covalent radii (0.97 Å for O-H, 1.32 Å for O-O, 3.05 Å for K-Cl)."""

    inner: float = 0.5
    """Full strength below."""
    outer: float = 0.8
    """Nothing beyond: bonds are longer, multiple ones (0.78 to 0.85 sums) but for their stretching."""

    def __post_init__(self) -> None:
        """Refuse a switch that has no width, or one that reaches bonds."""
        if not 0.0 <= self.inner < self.outer <= 1.0:
            raise ValueError(
                f"repulsion: expected 0 <= repulsion_inner < repulsion_outer <= 1 (sums of covalent radii), found "
                f"{self.inner:g} and {self.outer:g}; correct the config"
            )


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Shape of one E2Former V2 network (E2Former V2 specification, section 10).

    Lengths in Å. `stages` holds the ordinary blocks, `cluster` the long-range blocks of `with_cluster: node`
    (specification, section 8), which run after them on their own list.
    """

    lmax: int
    channels: int
    num_heads: int
    head_scalars: int
    num_basis: int
    out_channels: int
    embedding_cutoff: float
    stages: tuple[Stage, ...]
    cluster: tuple[Stage, ...] = ()
    embedding_basis_cutoff: float = 0.0
    """End of the embedding's radial grid; 0 stands for `embedding_cutoff`."""
    max_neighbors: int | None = None
    score: str = "QK"
    """`QK`, `QKdot` or `QKdotS` (specification, section 3.4)."""
    normalizer: str = "softmax"
    """`softmax`, `softplus` or `sigmoid`."""
    softmax: str = "exact"
    """`exact` (published checkpoints) or `smooth` (specification, section 9.2)."""
    average_degree: float = AVERAGE_DEGREE
    embedding_layer_norm: bool = True
    elements: tuple[str, ...] | None = None
    reference_energies: Mapping[str, float] | None = None
    """eV by symbol."""
    head: str | None = None
    repulsion: RepulsionRange | None = None
    """Screened repulsion of nuclei at short distances; None in published checkpoints."""

    def __post_init__(self) -> None:
        """Refuse shapes that no E2Former V2 has."""
        if self.embedding_basis_cutoff == 0.0:
            object.__setattr__(self, "embedding_basis_cutoff", self.embedding_cutoff)
        if self.lmax not in (1, 2):
            raise ValueError(f"lmax: expected 1 or 2, found {self.lmax}; other degrees are not supported")
        if self.channels % self.num_heads:
            raise ValueError(
                f"expected channels to be a multiple of num_attn_heads, found {self.channels} and {self.num_heads}; "
                "channel c belongs to head c mod num_attn_heads"
            )
        _check_choice("softmax", self.softmax, ("exact", "smooth"))
        _check_choice("score", self.score, ("QK", "QKdot", "QKdotS"))
        _check_choice("normalizer", self.normalizer, ("softmax", "softplus", "sigmoid"))
        for stage in (*self.stages, *self.cluster):
            _check_choice("attn_type", stage.attention, ("zero-order", "so2-first-order"))
        if not self.stages:
            raise ValueError("expected at least one attention stage, found none; set num_layers or stage_cutoffs")
        lengths = [self.embedding_cutoff, self.embedding_basis_cutoff]
        lengths += [length for stage in (*self.stages, *self.cluster) for length in (stage.cutoff, stage.basis_cutoff)]
        if not all(math.isfinite(length) and length > 0 for length in lengths):
            raise ValueError(f"expected positive cutoffs in Å, found {lengths}; correct the config")
        if self.num_basis < 2:
            raise ValueError(f"number_of_basis: expected at least 2 Gaussians, found {self.num_basis}")

    @property
    def all_stages(self) -> tuple[Stage, ...]:
        """Ordinary and long-range stages in the order in which they run."""
        return (*self.stages, *self.cluster)

    @property
    def cutoffs(self) -> tuple[float, ...]:
        """Distinct cutoffs in Å, ascending: one neighbor list each."""
        return tuple(sorted({self.embedding_cutoff, *(stage.cutoff for stage in self.all_stages)}))

    @property
    def receptive_radius(self) -> float:
        """How far an atom's energy reaches, Å: the embedding is a hop too (specification, section 5)."""
        return self.embedding_cutoff + sum(stage.cutoff for stage in self.all_stages)

    @property
    def edge_width(self) -> int:
        """Hidden width of the edge networks (specification, section 2)."""
        return min(128, self.num_basis // 2)

    @property
    def score_width(self) -> int:
        """Hidden width of query and key (specification, section 3.2)."""
        return self.num_heads * self.head_scalars // 2

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON; `repulsion` only where there is one."""
        values = dataclasses.asdict(self)
        if self.repulsion is None:
            del values["repulsion"]
        return values

    @classmethod
    def from_yaml(cls, mapping: Mapping[str, Any]) -> "ModelConfig":
        """Read the public flattened config (specification, section 10) or the explicit spelling of stages.

        Args:
            mapping: the parsed config.yaml. `backbone_config` holds the network; `embedding_cutoff`,
                `stage_cutoffs`, `stage_attn_types` and `stage_rbf` spell the stages out and win over `attn_type` and
                `max_radius`; `softmax: smooth` selects the smooth normalizer; `repulsion: zbl` adds
                the screened repulsion, within `repulsion_inner` and `repulsion_outer`. Lengths in Å, energies in eV.

        Raises:
            ValueError: a key is missing, malformed or asks for something this implementation lacks.
        """
        from tessera.model.config_yaml import read_config  # noqa: PLC0415  (the reader builds this class)

        return read_config(mapping)


def _check_choice(name: str, found: str, expected: tuple[str, ...]) -> None:
    if found not in expected:
        raise ValueError(f"{name}: expected {' or '.join(expected)}, found '{found}'; change the config")
