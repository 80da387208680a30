// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "tessera/comm/communicator.hpp"
#include "tessera/model/passport.hpp"

namespace tessera {

/// read_passport() on every rank, which agree on the outcome: hosts may differ in files, processors and devices.
///
/// All ranks call this, each with its own path.
/// @throws Error(collective) as read_passport() if it fails on some rank, which is named unless all fail; or if ranks
/// read models of other weights.
[[nodiscard]] Passport read_shared_passport(const std::string& path, Communicator& communicator);

}  // namespace tessera
