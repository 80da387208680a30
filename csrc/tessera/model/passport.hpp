// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <string>
#include <vector>

namespace tessera {

/// What an artifact says of itself (ARCHITECTURE.md, Passport); read without running model code.
struct Passport {
  int format = 0;
  std::vector<std::string> elements;
  std::vector<double> cutoffs;  ///< Å, one a list
  std::string dtype;            ///< "float32" or "float64"
  std::string matmul;
  std::string device;  ///< "cpu" or "cuda"
  std::string device_capability;
  std::string torch_version;
  std::string tessera_version;
  std::string weights_sha256;
  bool uses_charge = false;
  std::array<long, 2> charge_range{};        ///< inclusive
  std::array<long, 2> multiplicity_range{};  ///< inclusive
  int num_layers = 0;
  int num_messages = 0;         ///< halo exchanges of one forward pass
  double receptive_radius = 0;  ///< Å
  std::string json;             ///< the whole passport as stored

  [[nodiscard]] double largest_cutoff() const;
};

/// Reads and checks the passport of `path`.
///
/// @throws Error(collective) if the file is missing, is no artifact, is truncated, has another format number, lacks a
/// key, or was compiled for another torch minor version or device; the text names expected, found and what to do.
[[nodiscard]] Passport read_passport(const std::string& path);

}  // namespace tessera
