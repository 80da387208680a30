// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/base/box.hpp"

namespace tessera {

/// Vector of an edge, receiver minus sender image: v = r_i - r_j - shift . cell, Å.
///
/// Every search and the engine use this one expression, on positions as given, so that they agree bit for bit on
/// which side of a cutoff an edge lies, also at d == cutoff. The edge seen from its other end is exactly -v.
[[nodiscard]] inline Vec3 edge_vector(const Vec3& receiver, const Vec3& sender, const Shift& shift, const Box& box)
{
  return (receiver - sender) - box.translation(shift);
}

}  // namespace tessera
