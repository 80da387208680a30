// SPDX-License-Identifier: MIT
#pragma once

#include <mutex>

namespace tessera {

/// Held while libtorch opens a package: its reader keeps the parsed metadata in a static variable, so that two
/// threads (virtual ranks) that open packages at once would race.
[[nodiscard]] std::unique_lock<std::mutex> lock_package_reader();

}  // namespace tessera
