// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include <string>

#include "tessera/comm/communicator.hpp"

namespace tessera {

/// Name of this host, by which hosts are told apart. @throws Error(rank) if the system does not tell it.
[[nodiscard]] std::string host_name();

/// Place of this rank among the ranks of the same host, by which the host's devices are dealt out.
///
/// Hosts are told apart by name. All ranks call this.
[[nodiscard]] int local_rank(Communicator& communicator);

/// Place of this process among all of its host that one launcher has started, where the launcher says it (MPICH, Open
/// MPI): whatever communicator they are divided into, no two share a place.
[[nodiscard]] std::optional<int> launcher_local_rank();

}  // namespace tessera
