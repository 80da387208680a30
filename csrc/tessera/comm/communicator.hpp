// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tessera {

enum class Reduction { sum, min, max };

/// A message in flight; wait() returns once its buffer may be reused (send) or read (receive).
class Request {
 public:
  virtual ~Request() = default;
  virtual void wait() = 0;
};

/// The ranks that share one system. All collective calls are made by every rank in the same order.
///
/// Implementations: serial (one rank), virtual (ranks are threads of one process), mpi, nccl.
/// @throws Error(rank) from any call when a peer has failed (see abort()), never a hang.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int num_ranks() const noexcept = 0;

  virtual void all_reduce(std::span<double> values, Reduction reduction) = 0;
  virtual void all_reduce(std::span<std::int64_t> values, Reduction reduction) = 0;

  /// Every rank's equally long record, in rank order.
  [[nodiscard]] virtual std::vector<std::byte> all_gather(std::span<const std::byte> record) = 0;

  /// Sends `bytes_to[r]` bytes of `data` (packed in rank order) to each rank r; returns what came, in rank order,
  /// and writes how much came from each rank to `bytes_from`.
  [[nodiscard]] virtual std::vector<std::byte> all_to_all(std::span<const std::byte> data,
                                                          std::span<const std::int64_t> bytes_to,
                                                          std::vector<std::int64_t>& bytes_from) = 0;

  /// Non-blocking; the span must stay alive until the request is waited for. Messages between two ranks with one
  /// tag arrive in the order sent. A rank may send to itself.
  [[nodiscard]] virtual std::unique_ptr<Request> send(std::span<const std::byte> data, int to, int tag) = 0;
  [[nodiscard]] virtual std::unique_ptr<Request> receive(std::span<std::byte> data, int from, int tag) = 0;

  virtual void barrier() = 0;

  /// Wakes every rank that waits in a call of this communicator; their calls throw Error(rank) with this text.
  virtual void abort(const char* reason) noexcept = 0;
};

[[nodiscard]] std::unique_ptr<Communicator> make_serial_communicator();

}  // namespace tessera
