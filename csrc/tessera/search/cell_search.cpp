// SPDX-License-Identifier: MIT
#include "tessera/search/cell_search.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tessera/base/error.hpp"
#include "tessera/search/cell_grid.hpp"
#include "tessera/search/edge_vector.hpp"

namespace tessera {
namespace {

struct Partner {
  std::int64_t sender = 0;
  Shift shift{};
  bool operator<(const Partner& other) const { return std::tie(sender, shift) < std::tie(other.sender, other.shift); }
};

/// Appends the senders of one receiver. Wrapped positions decide cheaply and generously, edge_vector() exactly.
void find_partners(std::span<const Vec3> positions, std::int64_t i, const CellGrid& grid,
                   const std::vector<CellGrid::Neighborhood>& neighborhoods, const Box& box, double cutoff,
                   std::vector<Partner>& partners)
{
  const double reach_sq = grid.reach() * grid.reach();
  const Vec3 center = grid.wrapped(i);
  const Shift& wrap_i = grid.wrap_of(i);
  for (const auto& near : neighborhoods) {
    const Vec3 moved_center = center - near.translation;
    for (std::int64_t place = near.first; place < near.last; ++place) {
      const Vec3 guess = moved_center - grid.wrapped_positions()[place];
      if (dot(guess, guess) > reach_sq) continue;
      const std::int64_t j = grid.rows()[place];
      const Shift& wrap_j = grid.wrap_of(j);
      Shift shift{};
      for (int k = 0; k < 3; ++k) shift[k] = near.image[k] + wrap_i[k] - wrap_j[k];
      if (i == j && shift == Shift{}) continue;
      const Vec3 v = edge_vector(positions[i], positions[j], shift, box);
      if (dot(v, v) <= cutoff * cutoff) partners.push_back({j, shift});
    }
  }
}

}  // namespace

NeighborList cell_search(std::span<const Vec3> positions, std::int64_t num_receivers, const Box& box, double cutoff)
{
  const auto num_atoms = static_cast<std::int64_t>(positions.size());
  TESSERA_REQUIRE(num_receivers >= 0 && num_receivers <= num_atoms, "{} receivers among {} positions", num_receivers,
                  num_atoms);
  TESSERA_REQUIRE(std::isfinite(cutoff) && cutoff > 0, "the cutoff must be positive, got {} Å", cutoff);
  NeighborList list;
  list.cutoff = cutoff;
  list.num_receivers = num_receivers;
  if (num_receivers == 0) return list;

  const CellGrid grid(positions, box, cutoff);
  std::vector<CellGrid::Neighborhood> neighborhoods;
  std::vector<Partner> partners;
  std::int64_t current_cell = -1;
  for (std::int64_t i = 0; i < num_receivers; ++i) {
    if (grid.cell_of(i) != current_cell) {
      current_cell = grid.cell_of(i);
      grid.neighborhoods_of(current_cell, neighborhoods);
    }
    partners.clear();
    find_partners(positions, i, grid, neighborhoods, box, cutoff, partners);
    std::sort(partners.begin(), partners.end());
    for (const Partner& partner : partners) {
      list.receiver.push_back(i);
      list.sender.push_back(partner.sender);
      list.shift.push_back(partner.shift);
    }
  }
  return list;
}

}  // namespace tessera
