// SPDX-License-Identifier: MIT
#pragma once

#include <pybind11/pybind11.h>

#include "tessera/engine/engine.hpp"

namespace tessera::bindings {

/// Options by the names of the pair style: skin, rebuild, recut, curve, balance, peers, search, overlap, threads.
/// @throws TypeError for any other name; Error(collective) for a value that is none of an option's choices.
[[nodiscard]] EngineOptions read_engine_options(const pybind11::dict& options);

[[nodiscard]] pybind11::dict to_dict(const EngineReport& report);

}  // namespace tessera::bindings
