// SPDX-License-Identifier: MIT
#include "tessera/search/cell_grid.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tessera/search/wrapped_positions.hpp"

namespace tessera {
namespace {

// Beyond this many cells from the origin of a non-periodic axis all atoms share the outermost cell: clamping moves no
// two cells further apart, so nothing is lost but speed.
constexpr double kFurthestCell = 1e12;

}  // namespace

CellGrid::CellGrid(std::span<const Vec3> positions, const Box& box, double cutoff) : box_(box)
{
  WrappedPositions wrapped = wrap_positions(positions, box, cutoff);
  wrap_ = std::move(wrapped.wraps);
  reach_ = cutoff + wrapped.rounding;
  lay_axes();
  fill(positions, wrapped.fractions);
}

void CellGrid::lay_axes()
{
  for (int k = 0; k < 3; ++k) {
    Axis& axis = axes_[k];
    const double height = box_.height(k);
    axis.periodic = box_.periodic()[k];
    if (axis.periodic) {
      axis.num_cells = static_cast<std::int64_t>(std::clamp(std::floor(height / reach_), 1.0, kFurthestCell));
      axis.cells_per_fraction = static_cast<double>(axis.num_cells);
      axis.num_layers = axis.num_cells > 1 ? 1 : static_cast<std::int64_t>(std::ceil(reach_ / height));
    } else {
      axis.cells_per_fraction = height / reach_;
      axis.num_layers = 1;
    }
  }
}

CellGrid::Coordinate CellGrid::coordinate_of(const Vec3& fraction) const
{
  Coordinate c{};
  for (int k = 0; k < 3; ++k) {
    const double cell =
        std::clamp(std::floor(fraction[k] * axes_[k].cells_per_fraction), -kFurthestCell, kFurthestCell);
    c[k] = static_cast<std::int64_t>(cell);
    if (axes_[k].periodic) c[k] = std::clamp<std::int64_t>(c[k], 0, axes_[k].num_cells - 1);
  }
  return c;
}

/// The slot that holds the cell with this coordinate, or the empty one where it belongs.
std::size_t CellGrid::find_slot(const Coordinate& coordinate) const
{
  std::uint64_t hash = 0;
  for (const auto c : coordinate) {
    hash = (hash ^ static_cast<std::uint64_t>(c)) * 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio (Fibonacci hashing)
    hash ^= hash >> 29;
  }
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = hash & mask;
  while (table_[slot] >= 0 && coordinates_[table_[slot]] != coordinate) slot = (slot + 1) & mask;
  return slot;
}

void CellGrid::fill(std::span<const Vec3> positions, const std::vector<Vec3>& fractions)
{
  const std::size_t num_atoms = positions.size();
  table_.assign(std::bit_ceil(2 * num_atoms + 2), -1);
  cell_of_.resize(num_atoms);
  std::vector<std::int64_t> count;
  for (std::size_t row = 0; row < num_atoms; ++row) {
    const Coordinate coordinate = coordinate_of(fractions[row]);
    const std::size_t slot = find_slot(coordinate);
    if (table_[slot] < 0) {
      table_[slot] = static_cast<std::int64_t>(coordinates_.size());
      coordinates_.push_back(coordinate);
      count.push_back(0);
    }
    cell_of_[row] = table_[slot];
    ++count[cell_of_[row]];
  }
  first_.assign(coordinates_.size() + 1, 0);
  for (std::size_t cell = 0; cell < count.size(); ++cell) first_[cell + 1] = first_[cell] + count[cell];

  rows_.resize(num_atoms);
  wrapped_.resize(num_atoms);
  place_.resize(num_atoms);
  std::vector<std::int64_t> next(first_.begin(), first_.end() - 1);
  for (std::size_t row = 0; row < num_atoms; ++row) {
    const std::int64_t place = next[cell_of_[row]]++;
    rows_[place] = static_cast<std::int64_t>(row);
    wrapped_[place] = positions[row] - box_.translation(wrap_[row]);
    place_[row] = place;
  }
}

void CellGrid::neighborhoods_of(std::int64_t cell, std::vector<Neighborhood>& found) const
{
  found.clear();
  const Coordinate center = coordinates_[cell];
  const auto layers = [&](int k) { return axes_[k].num_layers; };
  Coordinate offset{};
  for (offset[0] = -layers(0); offset[0] <= layers(0); ++offset[0]) {
    for (offset[1] = -layers(1); offset[1] <= layers(1); ++offset[1]) {
      for (offset[2] = -layers(2); offset[2] <= layers(2); ++offset[2]) {
        Coordinate c{};
        Shift image{};
        for (int k = 0; k < 3; ++k) {
          c[k] = center[k] + offset[k];
          if (!axes_[k].periodic) continue;
          const std::int64_t n = axes_[k].num_cells;
          const std::int64_t turns = c[k] >= 0 ? c[k] / n : -((n - 1 - c[k]) / n);
          image[k] = static_cast<std::int32_t>(turns);
          c[k] -= turns * n;
        }
        const std::int64_t other = table_[find_slot(c)];
        if (other >= 0) found.push_back({first_[other], first_[other + 1], image, box_.translation(image)});
      }
    }
  }
}

}  // namespace tessera
