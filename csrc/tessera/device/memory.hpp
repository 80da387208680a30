// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/device/stream.hpp"

namespace tessera {

/// What kind of memory an array lies in.
enum class MemoryKind {
  device,  ///< of the GPU; of the host if the device is the host
  pinned,  ///< page-locked memory of the host, which copies to and from the GPU without waiting
};

/// @throws Error(rank) naming the bytes asked for and those free if there is not enough; std::bad_alloc on the host.
[[nodiscard]] void* allocate(Device device, MemoryKind kind, std::size_t bytes);
void release(Device device, MemoryKind kind, void* memory) noexcept;

/// Queues a copy between any two places of `stream`'s device and the host. From or to pageable memory it may wait.
void copy_bytes(void* to, const void* from, std::size_t bytes, StreamRef stream);
/// Queues setting every byte to zero.
void clear_bytes(void* memory, std::size_t bytes, StreamRef stream);

struct MemoryUse {
  std::size_t free = 0, total = 0;
};
/// Bytes of a GPU, those of other processes and of allocators' caches counted as used. @throws Error(rank) on the host.
[[nodiscard]] MemoryUse memory_of(Device device);

}  // namespace tessera
