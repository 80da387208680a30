// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "tessera/device/stream.hpp"

namespace tessera {

/// Makes PyTorch work on `stream`, and its device the current one, until the end of scope; nothing for the host.
class TorchStreamScope {
 public:
  explicit TorchStreamScope(StreamRef stream);
  ~TorchStreamScope();
  TorchStreamScope(const TorchStreamScope&) = delete;
  TorchStreamScope& operator=(const TorchStreamScope&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Work on a GPU that was recorded once and is replayed as one launch (a CUDA graph).
///
/// Everything keeps its address: memory that PyTorch hands out while recording belongs to the graph and holds the last
/// replay's values. Only kernels and copies within one stream, and what forks from it by events, can be recorded.
class CapturedGraph {
 public:
  CapturedGraph();
  ~CapturedGraph();

  /// Records what `body` queues on `stream`, which must be the current one of PyTorch and not the default stream.
  /// Nothing runs yet. @throws Error(rank) if something in the body cannot be recorded; no graph remains then.
  void capture(StreamRef stream, const std::function<void()>& body);
  void replay();
  void reset();
  [[nodiscard]] bool is_captured() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The most bytes that PyTorch's allocator has handed out on this device at a time; 0 for the host.
[[nodiscard]] std::size_t peak_bytes(Device device);
/// How often it has had none left; 0 for the host. Compiled code does not say why an allocation failed.
[[nodiscard]] std::size_t num_out_of_memory(Device device);
/// Gives memory that PyTorch keeps for later back to the device if less is free than it keeps: a graph cannot use it.
void release_cached_memory(Device device);

}  // namespace tessera
