// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/device/stream.hpp"

namespace tessera {

/// Where a rank computes, as far as it decides how ranks can reach each other's memory.
struct RankDevice {
  std::string host;       ///< its name
  std::string bus_id;     ///< of the GPU in its host; empty: the rank computes on the host
  bool has_nccl = false;  ///< whether the rank's library was built with NCCL
};

/// What this rank has to say of itself.
[[nodiscard]] RankDevice describe_rank(Device device, bool has_nccl);

/// Every rank's description, in rank order. All ranks call this.
[[nodiscard]] std::vector<RankDevice> gather_devices(Communicator& communicator, const RankDevice& mine);

/// Why these ranks cannot exchange over NCCL, empty if they can: the same on all ranks, who see the same descriptions.
///
/// NCCL takes one rank a GPU. A GPU is known by its host's name and its bus number there.
[[nodiscard]] std::string obstacle_to_nccl(std::span<const RankDevice> ranks);

}  // namespace tessera
