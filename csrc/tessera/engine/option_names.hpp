// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "tessera/engine/engine.hpp"

namespace tessera {

/// "hilbert" or "morton". @throws Error(collective) naming the choices.
[[nodiscard]] CurveKind parse_curve(std::string_view name);

/// "atoms" or "edges". @throws Error(collective) naming the choices.
[[nodiscard]] Balance parse_balance(std::string_view name);

/// "auto", "nccl", "staged" or "messages". @throws Error(collective) naming the choices.
[[nodiscard]] ExchangeRoute parse_exchange(std::string_view name);

/// "on", "off" or "check". @throws Error(collective) naming the choices.
[[nodiscard]] GraphUse parse_graph_use(std::string_view name);

/// "yes" or "no". @throws Error(collective) naming the choices.
[[nodiscard]] bool parse_yes_no(std::string_view option, std::string_view name);

}  // namespace tessera
