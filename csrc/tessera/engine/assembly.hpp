// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/types.hpp"
#include "tessera/engine/geometry.hpp"

namespace tessera {

/// Forces, virial and (if asked for) per-atom virials of a shard, gathered from the edge gradients of all lists.
///
/// With g = dE/dv of an edge (v receiver minus sender): F_i -= g, F_j += g, virial -= v (x) g; of an edge's virial each
/// end gets half. Sums run in edge order, in double. Rows are the widest list's extended rows; what the halo rows
/// gather belongs to their owners and goes home by a reverse exchange.
struct ForceAssembly {
  std::vector<Vec3> forces;        ///< [num_rows], eV/Å
  std::vector<Mat3> atom_virials;  ///< [num_rows], eV; empty unless wanted
  Mat3 virial{};                   ///< eV, of this shard's edges

  ForceAssembly(std::int64_t num_rows, bool wants_atom_virial);

  void add(const ActiveEdges& edges, std::span<const Vec3> gradients);
};

}  // namespace tessera
