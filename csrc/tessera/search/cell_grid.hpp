// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/box.hpp"

namespace tessera {

/// Atoms sorted into the occupied cells of a grid along the box axes; the back stage of cell_search().
///
/// Only occupied cells are stored, found through a hash table, so that memory is O(atoms) for a droplet in a huge box
/// and for atoms far outside a non-periodic axis. A cell is at least `reach` wide across each axis, or the axis is one
/// cell and several of its images are within reach.
class CellGrid {
 public:
  /// @throws Error(rank) as wrap_positions().
  CellGrid(std::span<const Vec3> positions, const Box& box, double cutoff);

  /// A run of `atoms()` under one periodic image.
  struct Neighborhood {
    std::int64_t first = 0, last = 0;
    Shift image{};
    Vec3 translation{};  ///< image . cell, Å
  };

  [[nodiscard]] std::int64_t cell_of(std::int64_t row) const { return cell_of_[row]; }
  [[nodiscard]] const Shift& wrap_of(std::int64_t row) const { return wrap_[row]; }
  /// Wrapped position of a row, Å.
  [[nodiscard]] Vec3 wrapped(std::int64_t row) const { return wrapped_[place_[row]]; }

  /// Rows sorted by cell, and their wrapped positions in the same order.
  [[nodiscard]] std::span<const std::int64_t> rows() const noexcept { return rows_; }
  [[nodiscard]] std::span<const Vec3> wrapped_positions() const noexcept { return wrapped_; }

  /// Replaces `found` by everything that may lie within the cutoff of an atom of the cell. Of several images of one
  /// cell those with the smaller `image` come first (the order of arrays).
  void neighborhoods_of(std::int64_t cell, std::vector<Neighborhood>& found) const;

  /// The cutoff plus a bound on the rounding of wrapped positions, Å: no pair within the cutoff is further apart.
  [[nodiscard]] double reach() const noexcept { return reach_; }

 private:
  using Coordinate = std::array<std::int64_t, 3>;
  struct Axis {
    bool periodic = false;
    std::int64_t num_cells = 1;  // of a periodic axis
    double cells_per_fraction = 1;
    std::int64_t num_layers = 1;  // cells to look at on either side
  };

  void lay_axes();
  void fill(std::span<const Vec3> positions, const std::vector<Vec3>& fractions);
  [[nodiscard]] Coordinate coordinate_of(const Vec3& fraction) const;
  [[nodiscard]] std::size_t find_slot(const Coordinate& coordinate) const;

  Box box_;
  double reach_ = 0;
  std::array<Axis, 3> axes_{};
  std::vector<Shift> wrap_;              // [atoms] position = wrapped + wrap . cell
  std::vector<std::int64_t> cell_of_;    // [atoms]
  std::vector<std::int64_t> place_;      // [atoms] place of a row in rows_
  std::vector<std::int64_t> rows_;       // [atoms] by cell
  std::vector<Vec3> wrapped_;            // [atoms] by cell
  std::vector<std::int64_t> first_;      // [cells + 1] into rows_
  std::vector<Coordinate> coordinates_;  // [cells]
  std::vector<std::int64_t> table_;      // open addressing: cell, or -1
};

}  // namespace tessera
