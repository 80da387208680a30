// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "tessera/search/chunked_search.hpp"

namespace tessera {

/// The exact search (level 3) of that name: "cells" (cell_search, the default) or "faiss" (range search of FAISS on the
/// CPU, chunk by chunk, each distance decided again in double precision). Both find the same edges bit for bit.
///
/// @throws Error(collective) for another name, and for "faiss" in a build without -DTESSERA_FAISS=ON.
[[nodiscard]] PairSearch make_pair_search(std::string_view name);

}  // namespace tessera
