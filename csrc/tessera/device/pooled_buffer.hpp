// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace tessera {

/// Host memory that only grows, for arrays that are refilled every step.
///
///     [ count rows in use | head-room up to capacity ]
///
/// Contents are not kept when it grows, and not initialized. The pointer changes only when the capacity does.
template <typename T>
class PooledBuffer {
 public:
  /// @param headroom fraction that is allocated on top when the buffer has to grow.
  explicit PooledBuffer(double headroom = 0.125) : headroom_(headroom) {}

  /// Makes room for `count` items and returns them.
  std::span<T> resize(std::int64_t count)
  {
    if (count > capacity_) {
      const auto grown = count + static_cast<std::int64_t>(headroom_ * static_cast<double>(count));
      data_.reset();  // first give back, so that the peak is the new size alone
      capacity_ = 0;
      data_ = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(grown));
      capacity_ = grown;
    }
    count_ = count;
    return items();
  }

  [[nodiscard]] std::span<T> items() noexcept { return {data_.get(), static_cast<std::size_t>(count_)}; }
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }

 private:
  double headroom_;
  std::unique_ptr<T[]> data_;
  std::int64_t count_ = 0;
  std::int64_t capacity_ = 0;
};

}  // namespace tessera
