// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/engine/engine.hpp"
#include "tessera/engine/list_arrays.hpp"
#include "tessera/plan/device_halo_exchange.hpp"

namespace tessera {

/// The exchanges between devices that outlive epochs: features of each list, and positions and forces of the widest.
class DeviceExchanges {
 public:
  /// Connects the ranks; all ranks call this.
  /// @throws Error(collective) if the route is impossible here; the text says why.
  DeviceExchanges(const EngineOptions& options, std::size_t num_lists, Device device,
                  const std::shared_ptr<Communicator>& communicator);

  /// Whether rows travel from device to device; else they pass through the host's exchanges.
  [[nodiscard]] bool is_active() const noexcept { return positions_ != nullptr; }
  /// Of the way that rows take, for a log; empty on one rank.
  [[nodiscard]] const std::string& description() const noexcept { return description_; }

  /// Takes over an epoch's plans, one a list. All ranks call this.
  void begin_epoch(const std::vector<std::shared_ptr<const HaloPlan>>& plans, StreamRef stream);

  [[nodiscard]] const std::vector<std::shared_ptr<DeviceHaloExchange>>& features() const noexcept { return features_; }
  [[nodiscard]] DeviceHaloExchange* positions() const noexcept { return positions_.get(); }
  /// Slots of each list's halo rows in this epoch.
  [[nodiscard]] std::vector<HaloSlots> slots() const;
  /// Of the features, as DeviceHaloExchange::traffic().
  [[nodiscard]] HaloExchange::Traffic feature_traffic() const;
  /// Changes when captured exchanges are void.
  [[nodiscard]] std::int64_t arrangement() const;

 private:
  void connect(const EngineOptions& options, Device device, const std::shared_ptr<Communicator>& communicator);

  std::shared_ptr<DeviceLink> link_;
  std::string description_;
  std::vector<HaloLayout> layouts_;
  std::vector<std::shared_ptr<DeviceHaloExchange>> features_;
  std::shared_ptr<DeviceHaloExchange> positions_;
};

}  // namespace tessera
