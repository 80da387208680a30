// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "tessera/comm/communicator.hpp"

namespace tessera {

/// Appends words without line breaks to an open binary file; only the rank that has the file calls this.
///
/// @throws Error(rank) if not all could be written.
void write_words(std::FILE* file, const std::vector<std::string>& words);

/// Reads what write_words() wrote, and tells all ranks; rank 0 alone needs the file.
///
/// @throws Error(collective) if the file ends early or holds something else there.
[[nodiscard]] std::vector<std::string> read_words(std::FILE* file, Communicator& communicator);

}  // namespace tessera
