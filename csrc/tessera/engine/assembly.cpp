// SPDX-License-Identifier: MIT
#include "tessera/engine/assembly.hpp"

namespace tessera {

ForceAssembly::ForceAssembly(std::int64_t num_rows, bool wants_atom_virial) : forces(num_rows, Vec3{})
{
  if (wants_atom_virial) atom_virials.assign(num_rows, Mat3{});
}

void ForceAssembly::add(const ActiveEdges& edges, std::span<const Vec3> gradients)
{
  for (std::size_t e = 0; e < edges.receiver.size(); ++e) {
    const std::int64_t i = edges.receiver[e];
    const std::int64_t j = edges.row[e];
    const Vec3& g = gradients[e];
    const Vec3& v = edges.vectors[e];
    forces[i] = forces[i] - g;
    forces[j] = forces[j] + g;
    for (int a = 0; a < 3; ++a) {
      for (int b = 0; b < 3; ++b) {
        const double share = -v[a] * g[b];
        virial[a][b] += share;
        if (atom_virials.empty()) continue;
        atom_virials[i][a][b] += 0.5 * share;
        atom_virials[j][a][b] += 0.5 * share;
      }
    }
  }
}

}  // namespace tessera
