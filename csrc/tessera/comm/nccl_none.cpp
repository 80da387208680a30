// SPDX-License-Identifier: MIT
// A build without NCCL. nccl.cpp takes this file's place where CMake finds the library.
#include "tessera/base/error.hpp"
#include "tessera/comm/gpu_census.hpp"
#include "tessera/comm/nccl.hpp"

namespace tessera {

bool has_nccl() noexcept { return false; }

NcclConnection connect_nccl(Communicator& communicator, Device device)
{
  // Ranks with another build are told, too.
  std::string obstacle = obstacle_to_nccl(gather_devices(communicator, describe_rank(device, false)));
  TESSERA_REQUIRE(!obstacle.empty(), "found no obstacle to NCCL in a build without it");
  return {nullptr, std::move(obstacle)};
}

}  // namespace tessera
