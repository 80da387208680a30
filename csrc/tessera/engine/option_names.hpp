// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/engine.hpp"

namespace tessera {

/// The keywords of set_option().
[[nodiscard]] std::vector<std::string> option_names();

/// Sets the option that `keyword` names from its text, as input scripts spell it: "skin" "1.5", "overlap" "no".
///
/// @returns whether there is an option of that name.
/// @throws Error(collective) if `text` is no value of the option, naming those that are.
[[nodiscard]] bool set_option(EngineOptions& options, std::string_view keyword, std::string_view text);

/// The integer that `text` spells, in all of it; none otherwise.
[[nodiscard]] std::optional<long> parse_integer(std::string_view text);

/// "H, O, K"
[[nodiscard]] std::string listed(const std::vector<std::string>& items);

}  // namespace tessera
