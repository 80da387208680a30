// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/model/step_extents.hpp"

namespace tessera {

/// Peak memory of one run, linear in what the run is given; N owned rows, list l has H_l halo rows and E_l edges.
///
/// Inputs, outputs, weights and all that the compiled code keeps at its worst moment; exact for a liquid of 0.1
/// atoms/Å^3 as far as the exporter counts, less sure for other densities.
struct MemoryModel {
  double bytes_per_row = 0;
  std::vector<double> bytes_per_halo_row;  ///< one a list
  std::vector<double> bytes_per_edge;      ///< one a list
  double bytes = 0;                        ///< whatever the system: the weights, mostly
  bool measured = false;                   ///< corrected by runs on the device, or only counted

  /// @param halo_rows, edges one a list.
  /// @throws Error(rank) if there are not as many counts as lists.
  [[nodiscard]] double predict(std::int64_t rows, std::span<const std::int64_t> halo_rows,
                               std::span<const std::int64_t> edges) const;
};

/// What an artifact says of itself (ARCHITECTURE.md, Passport); read without running model code.
struct Passport {
  int format = 0;
  std::vector<std::string> elements;
  std::vector<double> reference_energies;  ///< eV, one an element
  std::vector<double> cutoffs;             ///< Å, one a list
  std::string dtype;                       ///< "float32" or "float64"
  std::string matmul;                      ///< products of float32 matrices: "highest", or "tf32" on a GPU
  std::string device;                      ///< "cpu" or "cuda"
  std::string device_capability;
  std::string torch_version;
  std::string tessera_version;
  std::string weights_sha256;
  bool uses_charge = false;
  std::array<long, 2> charge_range{};        ///< inclusive
  std::array<long, 2> multiplicity_range{};  ///< inclusive
  int num_layers = 0;
  int num_messages = 0;                ///< halo exchanges of one forward pass
  double receptive_radius = 0;         ///< Å
  std::vector<std::string> recompute;  ///< what the backward pass computes anew: "embedding", "stage 3 twice", ...
  MemoryModel memory;
  std::optional<StepExtents> largest_step;  ///< the compiled code takes no more; none on the CPU and in older artifacts
  std::string json;                         ///< the whole passport as stored

  [[nodiscard]] double largest_cutoff() const;
};

/// Reads and checks the passport of `path`.
///
/// @throws Error(collective) if the file is missing, is no artifact, is truncated, has another format number, lacks a
/// key, or was compiled for another torch minor version or device; the text names expected, found and what to do.
[[nodiscard]] Passport read_passport(const std::string& path);

}  // namespace tessera
