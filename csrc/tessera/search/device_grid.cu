// SPDX-License-Identifier: MIT
#include "tessera/search/device_grid.cuh"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tessera/base/error.hpp"
#include "tessera/search/device_grid.hpp"

namespace tessera {
namespace {

using kernel::Grid;
using kernel::GridAxis;

// Columns of DeviceGrid::bounds_: the largest coordinate, the wraps along three axes, and how far from the end of the
// array a position stands that cannot be wrapped (0 if it can), so that the largest is the first of those.
constexpr std::int64_t kNumBounds = 5;

// All atoms further out along a non-periodic axis share the outermost cell: clamping moves no two cells further apart,
// so nothing is lost but speed. One cell more must have a key.
constexpr double kFurthestCell = kernel::kMiddleCell - 2;
constexpr double kMostCells = 1 << kernel::kCellBits;

void wrap_rows(StreamRef stream, const kernel::Lattice& box, const double* positions, std::int64_t num_atoms,
               std::int32_t* wraps, double* bounds)
{
  parallel::for_each(
      stream, num_atoms, TESSERA_LAMBDA(std::int64_t row) {
        const kernel::Vector r = kernel::vector_at(positions, row);
        const kernel::Vector fraction = kernel::to_fractional(box, r);
        double extent = 0;
        bool fits = true;
        for (int k = 0; k < 3; ++k) {
          fits = fits && r.x[k] - r.x[k] == 0;  // finite
          const double from_origin = fabs(r.x[k] - box.origin[k]);
          extent = fmax(extent, fmax(fabs(r.x[k]), from_origin));
          const double image = box.periodic[k] ? floor(fraction.x[k]) : 0;
          fits = fits && fabs(image) < kFurthestImage;
          const double wrap = fits ? image : 0;
          wraps[3 * row + k] = static_cast<std::int32_t>(wrap);
          bounds[kNumBounds * row + 1 + k] = fabs(wrap);
        }
        bounds[kNumBounds * row] = fits ? extent : 0;
        bounds[kNumBounds * row + 4] = fits ? 0 : static_cast<double>(num_atoms - row);
      });
}

/// Throws what wrap_positions() says of this row.
[[noreturn]] void refuse_row(StreamRef stream, const Vec3* positions, std::int64_t row, const Box& box)
{
  Vec3 position{};
  copy_bytes(&position, positions + row, sizeof(Vec3), stream);
  synchronize(stream);
  (void)wrap_position(static_cast<std::size_t>(row), position, box);
  fail(Reach::rank, "the device cannot wrap row {} at ({}, {}, {}), but the host can: report this", row, position[0],
       position[1], position[2]);
}

void lay_axes(Grid& grid, const Box& box, double cutoff)
{
  double num_neighborhoods = 1;
  for (int k = 0; k < 3; ++k) {
    GridAxis& axis = grid.axis[k];
    const double height = box.height(k);
    double num_layers = 1;
    axis.periodic = box.periodic()[k];
    if (axis.periodic) {
      const double num_cells = std::clamp(std::floor(height / grid.reach), 1.0, kMostCells);
      if (num_cells == 1) num_layers = std::ceil(grid.reach / height);
      axis.num_cells = static_cast<std::int32_t>(num_cells);
      axis.cells_per_fraction = num_cells;
      axis.num_bits = std::bit_width(static_cast<std::uint32_t>(axis.num_cells - 1));
    } else {
      axis.cells_per_fraction = height / grid.reach;
      axis.num_bits = kernel::kCellBits;
    }
    num_neighborhoods *= 2 * num_layers + 1;
    TESSERA_REQUIRE(num_neighborhoods < std::numeric_limits<std::int32_t>::max(),
                    "expected fewer than 2^31 images of the cell within {} Å of an atom, found {} along {} axes: use a "
                    "larger cell",
                    cutoff, num_neighborhoods, k + 1);
    axis.num_layers = static_cast<std::int32_t>(num_layers);
  }
  grid.num_neighborhoods = static_cast<std::int64_t>(num_neighborhoods);
}

TESSERA_HOST_DEVICE inline std::int32_t cell_along(const GridAxis& axis, double fraction)
{
  double cell = floor(fraction * axis.cells_per_fraction);
  if (!(cell > -kFurthestCell)) cell = -kFurthestCell;
  if (cell > kFurthestCell && !axis.periodic) cell = kFurthestCell;
  if (!axis.periodic) return kernel::kMiddleCell + static_cast<std::int32_t>(cell);
  if (cell < 0) return 0;
  return cell < axis.num_cells ? static_cast<std::int32_t>(cell) : axis.num_cells - 1;
}

void number_cells(StreamRef stream, const Grid& grid, kernel::CellKey* key_of_row, std::int32_t* row_numbers)
{
  parallel::for_each(
      stream, grid.num_atoms, TESSERA_LAMBDA(std::int64_t row) {
        const kernel::Vector fraction = kernel::to_fractional(grid.box, kernel::vector_at(grid.positions, row));
        kernel::Cell cell{};
        for (int k = 0; k < 3; ++k) cell.x[k] = cell_along(grid.axis[k], fraction.x[k] - grid.wraps[3 * row + k]);
        key_of_row[row] = kernel::key_of(grid, cell);
        row_numbers[row] = static_cast<std::int32_t>(row);
      });
}

void gather_wrapped(StreamRef stream, const Grid& grid, double* wrapped)
{
  parallel::for_each(
      stream, grid.num_atoms, TESSERA_LAMBDA(std::int64_t place) {
        const std::int64_t row = grid.rows[place];
        const kernel::Vector moved = kernel::translation(grid.box, kernel::image_at(grid.wraps, row));
        const kernel::Vector r = kernel::difference(kernel::vector_at(grid.positions, row), moved);
        for (int a = 0; a < 3; ++a) wrapped[3 * place + a] = r.x[a];
      });
}

}  // namespace

DeviceGrid::DeviceGrid(StreamRef stream)
    : stream_(stream),
      wraps_(stream.device),
      bounds_(stream.device),
      partial_(stream.device),
      extremes_(stream.device),
      extremes_here_(stream.device, MemoryKind::pinned),
      key_of_row_(stream.device),
      keys_(stream.device),
      row_(stream.device),
      rows_(stream.device),
      wrapped_(stream.device),
      scratch_(stream.device)
{
}

PositionExtent DeviceGrid::wrap(const Vec3* positions, std::int64_t num_atoms, const Box& box)
{
  wrap_rows(stream_, kernel::lattice_of(box), kernel::components(positions), num_atoms, wraps_.resize(3 * num_atoms),
            bounds_.resize(kNumBounds * num_atoms));
  parallel::max_columns(stream_, bounds_.data(), num_atoms, kNumBounds, extremes_.resize(kNumBounds), partial_);
  copy_bytes(extremes_here_.resize(kNumBounds), extremes_.data(), kNumBounds * sizeof(double), stream_);
  synchronize(stream_);
  const double* largest = extremes_here_.data();
  if (largest[4] > 0) refuse_row(stream_, positions, num_atoms - static_cast<std::int64_t>(largest[4]), box);
  return {largest[0], {largest[1], largest[2], largest[3]}};
}

Grid DeviceGrid::fill(const Vec3* positions, std::int64_t num_atoms, const Box& box, double cutoff)
{
  const PositionExtent extent = wrap(positions, num_atoms, box);
  Grid grid;
  grid.box = kernel::lattice_of(box);
  grid.reach = cutoff + bound_rounding(extent, box, cutoff);
  lay_axes(grid, box, cutoff);
  grid.num_atoms = num_atoms;
  grid.positions = kernel::components(positions);
  grid.wraps = wraps_.data();
  number_cells(stream_, grid, key_of_row_.resize(num_atoms), row_.resize(num_atoms));
  const int num_bits = std::max(1, grid.axis[0].num_bits + grid.axis[1].num_bits + grid.axis[2].num_bits);
  parallel::sort_by_key(stream_, key_of_row_.data(), keys_.resize(num_atoms), row_.data(), rows_.resize(num_atoms),
                        num_atoms, num_bits, scratch_);
  grid.key_of_row = key_of_row_.data();
  grid.keys = keys_.data();
  grid.rows = rows_.data();
  gather_wrapped(stream_, grid, wrapped_.resize(3 * num_atoms));
  grid.wrapped = wrapped_.data();
  return grid;
}

}  // namespace tessera
