// SPDX-License-Identifier: MIT
// One thread sums one component of one row, in edge order: no atomics, the same bits on every device.
#include "tessera/device/parallel.cuh"
#include "tessera/engine/edge_kernels.hpp"

namespace tessera {

namespace {

/// The row of the widest list's arrays where a row of this list's stands, -1 for an empty slot.
TESSERA_HOST_DEVICE inline std::int64_t wide_row_of(const ListView& list, std::int64_t row)
{
  if (row < list.extents.rows) return row;
  const std::int32_t slot = list.target[row - list.extents.rows];
  return slot < 0 ? -1 : list.extents.rows + slot;
}

TESSERA_HOST_DEVICE inline bool is_padding(const ListView& list, std::int64_t row)
{
  return row >= *list.num_owned && row < list.extents.rows;
}

}  // namespace

void add_forces(const ListView& list, const double* gradient, const ForceSums& sums, StreamRef stream)
{
  const std::int64_t num_rows = list.extents.rows;
  double* const forces = sums.forces;
  double* const totals = sums.totals;
  parallel::for_each(
      stream, 3 * (num_rows + list.extents.halo), TESSERA_LAMBDA(std::int64_t item) {
        const std::int64_t row = item / 3, c = item % 3, target = wide_row_of(list, row);
        if (target < 0 || is_padding(list, row)) return;
        double force = forces[3 * target + c];
        if (row < num_rows) {
          for (auto e = list.receiver_range[2 * row]; e < list.receiver_range[2 * row + 1]; ++e) {
            force -= gradient[3 * e + c];
          }
        }
        for (auto q = list.sender_range[2 * row]; q < list.sender_range[2 * row + 1]; ++q) {
          force += gradient[3 * list.edge_order[q] + c];
        }
        forces[3 * target + c] = force;
      });
  parallel::for_each(
      stream, 9 * num_rows, TESSERA_LAMBDA(std::int64_t item) {
        const std::int64_t row = item / 9, a = item % 9 / 3, b = item % 3;
        if (is_padding(list, row)) return;
        double sum = totals[kTotals * row + 3 * a + b];
        for (auto e = list.receiver_range[2 * row]; e < list.receiver_range[2 * row + 1]; ++e) {
          sum -= list.edge_vector[3 * e + a] * gradient[3 * e + b];
        }
        totals[kTotals * row + 3 * a + b] = sum;
      });
}

void add_atom_virials(const ListView& list, const double* gradient, double* virials, StreamRef stream)
{
  const std::int64_t num_rows = list.extents.rows;
  parallel::for_each(
      stream, 9 * (num_rows + list.extents.halo), TESSERA_LAMBDA(std::int64_t item) {
        const std::int64_t row = item / 9, a = item % 9 / 3, b = item % 3, target = wide_row_of(list, row);
        if (target < 0 || is_padding(list, row)) return;
        double sum = 0;
        if (row < num_rows) {
          for (auto e = list.receiver_range[2 * row]; e < list.receiver_range[2 * row + 1]; ++e) {
            sum -= list.edge_vector[3 * e + a] * gradient[3 * e + b];
          }
        }
        for (auto q = list.sender_range[2 * row]; q < list.sender_range[2 * row + 1]; ++q) {
          const auto e = list.edge_order[q];
          sum -= list.edge_vector[3 * e + a] * gradient[3 * e + b];
        }
        virials[9 * target + 3 * a + b] += 0.5 * sum;
      });
}

void add_energies(const double* atom_energy, const std::int64_t* num_owned, std::int64_t num_rows, double* totals,
                  StreamRef stream)
{
  parallel::for_each(
      stream, num_rows, TESSERA_LAMBDA(std::int64_t row) {
        if (row < *num_owned) totals[kTotals * row + 9] += atom_energy[row];
      });
}

void sum_totals(const double* totals, std::int64_t num_rows, double* sums, DeviceArray<double>& partial,
                StreamRef stream)
{
  parallel::sum_columns(stream, totals, num_rows, kTotals, sums, partial);
}

}  // namespace tessera
