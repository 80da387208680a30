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

/// One line a type whose mass differs from its element's by more than 0.1 u; empty if none.
///
/// @param lightest, heaviest mass of the lightest and the heaviest atom of each type, u, in the order of
/// `element_of_type`; not positive where a type has no atom or no mass yet.
[[nodiscard]] std::string contradicting_masses(const std::vector<std::int32_t>& element_of_type,
                                               const std::vector<std::string>& elements,
                                               std::span<const double> lightest, std::span<const double> heaviest);

/// Two lines for a log: the model and its atom types, the cutoffs and the rule of rebuilds.
[[nodiscard]] std::string describe_model(const std::string& path, const Passport& passport,
                                         const std::vector<std::int32_t>& element_of_type,
                                         const EngineOptions& options);

}  // namespace tessera
