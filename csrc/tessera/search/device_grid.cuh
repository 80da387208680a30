// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/search/device_vector.cuh"

namespace tessera::kernel {

using CellKey = std::uint64_t;

/// One axis of the grid; see CellGrid.
struct GridAxis {
  bool periodic = false;
  std::int32_t num_cells = 1;  ///< of a periodic axis
  double cells_per_fraction = 1;
  std::int32_t num_layers = 1;  ///< cells to look at on either side
  int num_bits = 0;             ///< of a key
};

/// Bits an axis has in a key; cell 0 of an axis that is not periodic stands in the middle of what they can tell.
constexpr int kCellBits = 21;
constexpr std::int32_t kMiddleCell = 1 << (kCellBits - 1);

/// Atoms by cell, for kernels.
struct Grid {
  Lattice box;
  GridAxis axis[3];
  double reach = 0;  ///< Å, cutoff plus the rounding of wrapped positions
  std::int64_t num_atoms = 0;
  std::int64_t num_neighborhoods = 0;   ///< cells, each under one image, that may hold partners of an atom
  const double* positions = nullptr;    ///< [num_atoms, 3] by row
  const std::int32_t* wraps = nullptr;  ///< [num_atoms, 3] by row
  const CellKey* key_of_row = nullptr;  ///< [num_atoms]
  const CellKey* keys = nullptr;        ///< [num_atoms] ascending
  const std::int32_t* rows = nullptr;   ///< [num_atoms] by (key, row)
  const double* wrapped = nullptr;      ///< [num_atoms, 3] in the order of `rows`
};

struct Cell {
  std::int32_t x[3];
};

TESSERA_HOST_DEVICE inline CellKey key_of(const Grid& grid, const Cell& cell)
{
  CellKey key = 0;
  for (int k = 0; k < 3; ++k) key = (key << grid.axis[k].num_bits) | static_cast<CellKey>(cell.x[k]);
  return key;
}

TESSERA_HOST_DEVICE inline Cell cell_of(const Grid& grid, CellKey key)
{
  Cell cell{};
  for (int k = 2; k >= 0; --k) {
    cell.x[k] = static_cast<std::int32_t>(key & ((CellKey{1} << grid.axis[k].num_bits) - 1));
    key >>= grid.axis[k].num_bits;
  }
  return cell;
}

/// The first place whose key is not below `key`.
TESSERA_HOST_DEVICE inline std::int64_t first_place(const CellKey* keys, std::int64_t first, std::int64_t last,
                                                    CellKey key)
{
  while (first < last) {
    const std::int64_t middle = first + (last - first) / 2;
    if (keys[middle] < key) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

/// A cell under one periodic image.
struct Neighborhood {
  CellKey key;
  Image image;
};

/// Number `n` of [0, num_neighborhoods) around a cell. Of several images of one cell those with the smaller image come
/// first (the order of arrays).
TESSERA_HOST_DEVICE inline Neighborhood neighborhood(const Grid& grid, CellKey center, std::int64_t n)
{
  Cell cell = cell_of(grid, center);
  Image image{{0, 0, 0}};
  auto rest = static_cast<std::int32_t>(n);
  for (int k = 2; k >= 0; --k) {
    const GridAxis& axis = grid.axis[k];
    const std::int32_t breadth = 2 * axis.num_layers + 1;
    std::int32_t c = cell.x[k] + rest % breadth - axis.num_layers;
    rest /= breadth;
    if (axis.periodic) {
      const std::int32_t turns = c >= 0 ? c / axis.num_cells : -((axis.num_cells - 1 - c) / axis.num_cells);
      image.x[k] = turns;
      c -= turns * axis.num_cells;
    }
    cell.x[k] = c;
  }
  return {key_of(grid, cell), image};
}

}  // namespace tessera::kernel
