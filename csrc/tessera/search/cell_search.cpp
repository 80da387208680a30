// SPDX-License-Identifier: MIT
#include "tessera/search/cell_search.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/search/cell_grid.hpp"
#include "tessera/search/edge_vector.hpp"

namespace tessera {
namespace {

// A receiver's edges are sorted by one number each: the sender's row, then which of its images. The neighborhoods of a
// cell are listed by ascending offset, so that of two images of one atom the one with the smaller shift comes first.
using PartnerKey = std::uint64_t;

// Every so many receivers are searched first to foresee the length of the list: without it a long list is moved as it
// grows, which takes as long as finding it.
constexpr std::int64_t kSampleEvery = 128;
constexpr double kHeadRoom = 1.1;  // untouched memory costs nothing

class PartnerFinder {
 public:
  PartnerFinder(std::span<const Vec3> positions, const Box& box, double cutoff)
      : positions_(positions), box_(box), cutoff_(cutoff), grid_(positions, box, cutoff)
  {
  }

  /// About the number of edges of the first receivers.
  [[nodiscard]] std::size_t estimate_edges(std::int64_t num_receivers)
  {
    double found = 0, sampled = 0;
    for (std::int64_t i = 0; i < num_receivers; i += kSampleEvery, ++sampled) {
      find_partners(i);
      found += static_cast<double>(partners_.size());
    }
    return static_cast<std::size_t>(kHeadRoom * found / sampled * static_cast<double>(num_receivers));
  }

  /// Appends the edges of one receiver.
  void append_edges(std::int64_t i, NeighborList& list)
  {
    find_partners(i);
    std::sort(partners_.begin(), partners_.end());
    for (const PartnerKey key : partners_) {
      const auto j = static_cast<std::int64_t>(key >> image_bits_);
      list.receiver.push_back(i);
      list.sender.push_back(j);
      list.shift.push_back(shift_of(i, j, neighborhoods_[key & ((PartnerKey{1} << image_bits_) - 1)]));
    }
  }

 private:
  /// Wrapped positions decide where they can; within twice their rounding of the cutoff edge_vector() does, exactly.
  void find_partners(std::int64_t i)
  {
    if (grid_.cell_of(i) != cell_) {
      cell_ = grid_.cell_of(i);
      grid_.neighborhoods_of(cell_, neighborhoods_);
      image_bits_ = std::bit_width(neighborhoods_.size());
    }
    partners_.clear();
    const double reach_sq = grid_.reach() * grid_.reach();
    const double surely = std::max(0.0, cutoff_ - 2 * (grid_.reach() - cutoff_));
    const Vec3 center = grid_.wrapped(i);
    for (std::size_t n = 0; n < neighborhoods_.size(); ++n) {
      const auto& near = neighborhoods_[n];
      const Vec3 moved_center = center - near.translation;
      for (std::int64_t place = near.first; place < near.last; ++place) {
        const Vec3 guess = moved_center - grid_.wrapped_positions()[place];
        const double distance_sq = dot(guess, guess);
        if (distance_sq > reach_sq) continue;
        const std::int64_t j = grid_.rows()[place];
        if (i == j && near.image == Shift{}) continue;
        if (distance_sq > surely * surely) {
          const Vec3 v = edge_vector(positions_[i], positions_[j], shift_of(i, j, near), box_);
          if (dot(v, v) > cutoff_ * cutoff_) continue;
        }
        partners_.push_back((static_cast<PartnerKey>(j) << image_bits_) | n);
      }
    }
  }

  [[nodiscard]] Shift shift_of(std::int64_t i, std::int64_t j, const CellGrid::Neighborhood& near) const
  {
    const Shift &wrap_i = grid_.wrap_of(i), &wrap_j = grid_.wrap_of(j);
    return {near.image[0] + wrap_i[0] - wrap_j[0], near.image[1] + wrap_i[1] - wrap_j[1],
            near.image[2] + wrap_i[2] - wrap_j[2]};
  }

  std::span<const Vec3> positions_;
  const Box& box_;
  double cutoff_;
  CellGrid grid_;
  std::int64_t cell_ = -1;
  std::vector<CellGrid::Neighborhood> neighborhoods_;  // of cell_
  int image_bits_ = 0;
  std::vector<PartnerKey> partners_;
};

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

  PartnerFinder finder(positions, box, cutoff);
  const std::size_t num_edges = finder.estimate_edges(num_receivers);
  list.receiver.reserve(num_edges);
  list.sender.reserve(num_edges);
  list.shift.reserve(num_edges);
  for (std::int64_t i = 0; i < num_receivers; ++i) finder.append_edges(i, list);
  return list;
}

}  // namespace tessera
