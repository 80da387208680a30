// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/base/box.hpp"
#include "tessera/device/device_array.hpp"
#include "tessera/search/wrapped_positions.hpp"

namespace tessera {

namespace kernel {
struct Grid;
}

/// Atoms sorted into the cells of a grid along the box axes, on a device; CellGrid's other self.
///
/// A cell is a key of at most 63 bits and found by binary search among the atoms' sorted keys, so that memory is
/// O(atoms) for a droplet in a huge box and for atoms far outside a non-periodic axis.
class DeviceGrid {
 public:
  explicit DeviceGrid(StreamRef stream);

  /// Sorts the atoms; waits for the stream once, for the extent of the positions. The answer (device_grid.cuh) points
  /// into this object's arrays and `positions` and holds until the next call.
  /// @param positions [num_atoms] on the device, Å.
  /// @throws Error(rank) as wrap_positions(), and if 2^31 cells or more lie within the cutoff of an atom.
  kernel::Grid fill(const Vec3* positions, std::int64_t num_atoms, const Box& box, double cutoff);

 private:
  PositionExtent wrap(const Vec3* positions, std::int64_t num_atoms, const Box& box);

  StreamRef stream_;
  DeviceArray<std::int32_t> wraps_;         // [atoms, 3] position = wrapped + wrap . cell
  DeviceArray<double> bounds_;              // [atoms, 5] see wrap()
  DeviceArray<double> partial_, extremes_;  // [5] of bounds_
  DeviceArray<double> extremes_here_;       // [5] page-locked
  DeviceArray<std::uint64_t> key_of_row_;   // [atoms]
  DeviceArray<std::uint64_t> keys_;         // [atoms] ascending
  DeviceArray<std::int32_t> row_;           // [atoms] 0, 1, ...
  DeviceArray<std::int32_t> rows_;          // [atoms] by key, then row
  DeviceArray<double> wrapped_;             // [atoms, 3] by key
  DeviceArray<std::byte> scratch_;
};

}  // namespace tessera
