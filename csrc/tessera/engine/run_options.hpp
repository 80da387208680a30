// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/engine.hpp"

namespace tessera {

/// An integer that may change from step to step: a number, or the name of a variable of the calling program.
struct StepInteger {
  std::string_view keyword;
  std::optional<long> number;
  std::string variable;  ///< where there is no number

  /// @throws Error(collective) if `text` is neither an integer nor "v_name".
  void set(std::string_view text);
  /// @throws Error(collective) if there is a number and it lies outside of `range`.
  void check(const std::array<long, 2>& range) const;
  /// What a variable's value means. @throws Error(collective) if `value` is no integer.
  [[nodiscard]] long from_variable(double value) const;
};

/// What a line of keywords and values says of a run.
struct RunOptions {
  EngineOptions engine;
  StepInteger charge{"charge", 0, {}};
  StepInteger multiplicity{"multiplicity", 1, {}};
};

/// Reads `keyword value keyword value ...`: those of set_option(), charge and multiplicity.
///
/// @throws Error(collective) for an unknown keyword, and for a value that is missing or wrong.
[[nodiscard]] RunOptions read_run_options(const std::vector<std::string>& words);

/// What a caller can ask for after a step, by name.
inline constexpr std::array<std::string_view, 4> kValueNames{"energy", "rebuilds", "cuts", "edges"};

/// Their values on this rank: energy without references times `scale`, rebuilds, cuts, edges.
[[nodiscard]] std::array<double, 4> values_of(const StepResult& result, const EngineReport& report, double scale);

/// @throws Error(collective): a restart file names a model whose weights have another hash than the file of that name.
[[noreturn]] void refuse_other_weights(const std::string& file, const std::string& expected, const std::string& found);

/// @throws Error(collective): LAMMPS's units that are neither metal nor real.
[[noreturn]] void refuse_units(std::string_view units);

}  // namespace tessera
