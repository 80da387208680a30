// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "tessera/device/gpu.hpp"

namespace tessera::operators::gpu {

inline constexpr int kBlock = 256;  // threads; eight warps hide the latency of one gather behind the others

/// Blocks of kBlock threads that give `count` items a thread each.
inline unsigned blocks_for(std::int64_t count) { return static_cast<unsigned>((count + kBlock - 1) / kBlock); }

/// The item of this thread where items are numbered through the grid.
__device__ inline std::int64_t global_item()
{
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

/// Reports what the launch before it has to say.
inline void check_launch(const char* kernel) { check_cuda(cudaGetLastError(), kernel); }

}  // namespace tessera::operators::gpu
