// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/engine/engine.hpp"

namespace tessera {

/// Element of each atom type of a caller: index into the passport's elements, -1 for "NULL" (not seen).
///
/// @param symbols one a type, "NULL" or an element.
/// @returns [num_types + 1]; [0] stands for no type and is -1.
/// @throws Error(collective) for another number of symbols, or an element that the model lacks.
[[nodiscard]] std::vector<std::int32_t> map_types(const std::vector<std::string>& symbols, int num_types,
                                                  const Passport& passport);

/// One line a type whose mass differs from its element's by more than 0.1 u; empty if none. All ranks call this.
///
/// @param types, masses of this rank's atoms; masses in u.
[[nodiscard]] std::string contradicting_masses(const std::vector<std::int32_t>& element_of_type,
                                               const std::vector<std::string>& elements, std::span<const int> types,
                                               std::span<const double> masses, Communicator& communicator);

/// @param is_mine [types + 1, types + 1] the pairs of types that a caller gives to Tessera, lower type first.
/// @throws Error(collective) naming a pair of types with elements that is not among them.
void require_all_pairs(const std::vector<std::int32_t>& element_of_type, const std::vector<bool>& is_mine);

/// Two lines for a log: the model and its atom types, the cutoffs and the rule of rebuilds.
[[nodiscard]] std::string describe_model(const std::string& path, const Passport& passport,
                                         const std::vector<std::int32_t>& element_of_type,
                                         const EngineOptions& options);

/// What a pair_coeff line says: `* *`, a model file, one element or NULL for each atom type.
struct PairCoefficients {
  std::string file;
  std::vector<std::string> symbols;
};
/// @throws Error(collective) naming what is wrong with the line.
[[nodiscard]] PairCoefficients parse_pair_coefficients(const std::vector<std::string>& words);

}  // namespace tessera
