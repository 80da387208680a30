// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

#include "tessera/device/stream.hpp"

namespace tessera {

/// Moves contiguous buffers between ranks where the model computes, in the order of a stream.
///
/// Implementations: NCCL (a GPU a rank), a communicator (host memory), one rank with itself (either).
class DeviceLink {
 public:
  struct Send {
    int peer = 0;
    const void* data = nullptr;  ///< [bytes]
    std::size_t bytes = 0;
  };
  struct Receive {
    int peer = 0;
    void* data = nullptr;  ///< [bytes], apart from all that is sent
    std::size_t bytes = 0;
  };

  virtual ~DeviceLink() = default;

  /// Where the buffers lie.
  [[nodiscard]] virtual Device device() const noexcept = 0;
  [[nodiscard]] virtual int num_ranks() const noexcept = 0;

  /// Queues one exchange on `stream`: all messages make progress together, in whatever order they are named.
  ///
  /// The messages of one exchange from a to b arrive in the order in which both name them; a rank may send to itself.
  /// @pre every peer that is named names this rank in its own call of the same number, with the same bytes.
  /// @throws Error(rank) for a peer or a stream that does not exist here, or what the transport has to say.
  virtual void exchange(std::span<const Send> sends, std::span<const Receive> receives, StreamRef stream) = 0;
};

}  // namespace tessera
