// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/plan/halo_exchange.hpp"

namespace tessera {

/// The halo exchanges of one epoch, one a list, which the operators find by handle.
///
/// Registration lasts as long as the object. Handles are never reused in a process.
class ExchangeSet {
 public:
  explicit ExchangeSet(std::vector<std::unique_ptr<HaloExchange>> exchanges);
  ~ExchangeSet();
  ExchangeSet(const ExchangeSet&) = delete;
  ExchangeSet& operator=(const ExchangeSet&) = delete;

  [[nodiscard]] std::int64_t handle() const noexcept { return handle_; }
  [[nodiscard]] HaloExchange& exchange(std::int64_t list);

  /// @throws Error(rank) if no living set has this handle.
  [[nodiscard]] static ExchangeSet& find(std::int64_t handle);

 private:
  std::vector<std::unique_ptr<HaloExchange>> exchanges_;
  std::int64_t handle_;
};

}  // namespace tessera
