// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/plan/device_halo_exchange.hpp"
#include "tessera/plan/halo_exchange.hpp"

namespace tessera {

/// The halo exchanges of one epoch, one a list, which the operators find by handle.
///
/// Registration lasts as long as the object. Handles are never reused in a process.
class ExchangeSet {
 public:
  /// @param exchanges one a list, through the memory of the host.
  /// @param on_device one a list, which take their place in the operators; these outlive epochs, and their plans must
  /// be those of this one. Empty: the operators stage the rows of a GPU through the host.
  /// @throws Error(rank) if there are others than one a list.
  explicit ExchangeSet(std::vector<std::unique_ptr<HaloExchange>> exchanges,
                       std::vector<std::shared_ptr<DeviceHaloExchange>> on_device = {});
  ~ExchangeSet();
  ExchangeSet(const ExchangeSet&) = delete;
  ExchangeSet& operator=(const ExchangeSet&) = delete;

  [[nodiscard]] std::int64_t handle() const noexcept { return handle_; }
  /// @throws Error(rank) if there is no such list.
  [[nodiscard]] HaloExchange& exchange(std::int64_t list);
  /// nullptr if rows are staged through exchange(list). @throws Error(rank) if there is no such list.
  [[nodiscard]] DeviceHaloExchange* device_exchange(std::int64_t list);

  /// @throws Error(rank) if no living set has this handle.
  [[nodiscard]] static ExchangeSet& find(std::int64_t handle);

 private:
  void check(std::int64_t list) const;

  std::vector<std::unique_ptr<HaloExchange>> exchanges_;
  std::vector<std::shared_ptr<DeviceHaloExchange>> on_device_;
  std::int64_t handle_;
};

}  // namespace tessera
