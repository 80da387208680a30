// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/comm/communicator.hpp"

namespace tessera {

/// Place of this rank among the ranks of the same host, by which the host's devices are dealt out.
///
/// Hosts are told apart by name. All ranks call this.
[[nodiscard]] int local_rank(Communicator& communicator);

}  // namespace tessera
