// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/device_link.hpp"

namespace tessera {

/// Whether this library was built with NCCL.
[[nodiscard]] bool has_nccl() noexcept;

/// A link over NCCL, or why there is none.
struct NcclConnection {
  std::shared_ptr<DeviceLink> link;  ///< nullptr if there is none
  std::string obstacle;              ///< empty if there is a link; else the same text on all ranks
};

/// Connects the ranks' GPUs; all ranks call this, and all get a link or none does.
///
/// There is none for one rank, a rank on the host, a build without NCCL, and two ranks on one GPU.
/// An exchange can be captured into a CUDA graph, after one that was not has reached the same peers. Graphs that hold
/// exchanges must go before the link. What ranks queue must agree in number and order, replays included. A rank that
/// fails leaves its peers' GPUs waiting: abort the communicator, which ends their processes.
/// @throws Error(rank) with NCCL's text if the connection fails.
[[nodiscard]] NcclConnection connect_nccl(Communicator& communicator, Device device);

}  // namespace tessera
