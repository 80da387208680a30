// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/device/memory.hpp"

namespace tessera {

/// Memory of a device that only grows, for arrays that are refilled while kernels hold on to their address.
///
///     [ count items in use | head-room up to capacity ]
///
/// Contents are not kept when it grows, and not initialized. The address changes only when the capacity does.
template <typename T>
class DeviceArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit DeviceArray(Device device = {}, MemoryKind kind = MemoryKind::device) : device_(device), kind_(kind) {}
  ~DeviceArray() { release(device_, kind_, data_); }
  DeviceArray(DeviceArray&& other) noexcept { swap(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept
  {
    swap(other);
    return *this;
  }

  /// Makes room for `count` items; when it has to grow, for as much more as `headroom`, a fraction of them.
  /// @throws Error(rank) as allocate(); the array is empty then.
  T* resize(std::int64_t count, double headroom = 0.125)
  {
    if (count > capacity_) {
      release(device_, kind_, std::exchange(data_, nullptr));  // first, so that the peak is the new size alone
      count_ = capacity_ = 0;
      const auto grown = count + static_cast<std::int64_t>(headroom * static_cast<double>(count));
      data_ = static_cast<T*>(allocate(device_, kind_, static_cast<std::size_t>(grown) * sizeof(T)));
      capacity_ = grown;
    }
    count_ = count;
    return data_;
  }

  /// Replaces the contents; the copy is queued on `stream`, and `values` may go when it has been (pageable memory).
  void assign(std::span<const T> values, StreamRef stream, double headroom = 0.125)
  {
    resize(static_cast<std::int64_t>(values.size()), headroom);
    copy_bytes(data_, values.data(), values.size_bytes(), stream);
  }

  /// The contents on the host; waits for the stream.
  [[nodiscard]] std::vector<T> to_host(StreamRef stream) const
  {
    std::vector<T> values(static_cast<std::size_t>(count_));
    copy_bytes(values.data(), data_, values.size() * sizeof(T), stream);
    synchronize(stream);
    return values;
  }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  /// Pinned or host memory only.
  [[nodiscard]] std::span<T> items() noexcept { return {data_, static_cast<std::size_t>(count_)}; }
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] Device device() const noexcept { return device_; }

 private:
  void swap(DeviceArray& other) noexcept
  {
    std::swap(device_, other.device_);
    std::swap(kind_, other.kind_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    std::swap(capacity_, other.capacity_);
  }

  Device device_;
  MemoryKind kind_ = MemoryKind::device;
  T* data_ = nullptr;
  std::int64_t count_ = 0;
  std::int64_t capacity_ = 0;
};

}  // namespace tessera
