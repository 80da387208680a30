// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/device/device_array.hpp"
#include "tessera/engine/list_arrays.hpp"

namespace tessera {

/// Cell and positions of one step, packed so that one copy brings them to the device.
///
///     [ cell, 9 (Å) | positions of N rows | positions of the widest list's H slots ]       doubles
inline constexpr std::int64_t kCellDoubles = 9;

/// Atoms closer than this are an error: the published model drops such pairs, and physical atoms never come that close.
inline constexpr double kCoincidentDistance = 1e-4;  // Å

/// Columns of `totals`: nine of the virial, row by row, and the energy.
inline constexpr std::int64_t kTotals = 10;

/// Marks the pairs of the skin's list that are edges now (d <= cutoff) and counts them, in both orders.
///
/// Writes keep, place, keep_by_sender, place_by_sender and status; place[pairs] is the number of edges.
void mark_edges(const ListView& list, const double* cell_and_positions, StreamRef stream,
                DeviceArray<std::byte>& scratch);

/// Writes the model's inputs from what mark_edges() found, and the padding behind them.
///
/// Padding edges join the padding rows N_real .. N-1 to themselves, evenly and in order, with a vector that no envelope
/// reaches. Their places in edge_order are their own; so a padding row's two ranges are alike. If more edges were
/// found than there is room for, those beyond are left out and status tells the number.
void write_edges(const ListView& list, const double* cell_and_positions, StreamRef stream);

/// Energy gradients of a list's edges, summed up where they belong.
struct ForceSums {
  double* forces = nullptr;  ///< [N + widest H, 3], eV/Å: of owned rows, then of the widest list's slots
  double* totals = nullptr;  ///< [N, kTotals]: -sum v (x) g over each receiver's edges, and its energy; eV
};

/// forces: F_i -= g, F_j += g for v = r_i - r_j - shift; totals: virial of the receivers. Adds to both.
/// @param gradient [E, 3], dE/d(edge vector), eV/Å.
void add_forces(const ListView& list, const double* gradient, const ForceSums& sums, StreamRef stream);

/// Half of each edge's virial -v (x) g to either end: adds to `virials` [N + widest H, 9], eV.
void add_atom_virials(const ListView& list, const double* gradient, double* virials, StreamRef stream);

/// Writes the atoms' energies (eV) beside the virials in `totals` [N, kTotals], zero for padding rows.
void add_energies(const double* atom_energy, const std::int64_t* num_owned, std::int64_t num_rows, double* totals,
                  StreamRef stream);

/// `sums` [kTotals]: the totals of all rows, in a fixed order.
void sum_totals(const double* totals, std::int64_t num_rows, double* sums, DeviceArray<double>& partial,
                StreamRef stream);

}  // namespace tessera
