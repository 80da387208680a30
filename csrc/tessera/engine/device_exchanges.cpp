// SPDX-License-Identifier: MIT
#include "tessera/engine/device_exchanges.hpp"

#include "tessera/base/error.hpp"
#include "tessera/comm/communicator_link.hpp"
#include "tessera/comm/nccl.hpp"

namespace tessera {

namespace {

constexpr int kLinkTag = 7300;

}  // namespace

DeviceExchanges::DeviceExchanges(const EngineOptions& options, std::size_t num_lists, Device device,
                                 const std::shared_ptr<Communicator>& communicator)
    : layouts_(num_lists)
{
  if (communicator->num_ranks() > 1) connect(options, device, communicator);
  if (!link_) return;
  for (std::size_t l = 0; l < num_lists; ++l) {
    features_.push_back(std::make_shared<DeviceHaloExchange>(link_, options.overlap));
  }
  positions_ = std::make_shared<DeviceHaloExchange>(link_, options.overlap);
}

void DeviceExchanges::connect(const EngineOptions& options, Device device,
                              const std::shared_ptr<Communicator>& communicator)
{
  const auto refuse = [](const char* name, const std::string& why) {
    fail(Reach::collective, "exchange {}: {}; use `exchange auto`", name, why);
  };
  switch (options.exchange) {
    case ExchangeRoute::staged:
      break;
    case ExchangeRoute::messages:
      if (device.is_gpu()) refuse("messages", "expected a model on the CPU, found one on a GPU");
      link_ = link_over(communicator, kLinkTag);
      return;
    case ExchangeRoute::nccl:
    case ExchangeRoute::automatic: {
      if (options.exchange == ExchangeRoute::automatic && !device.is_gpu()) return;
      NcclConnection connection = connect_nccl(*communicator, device);
      if (!connection.link && options.exchange == ExchangeRoute::nccl) refuse("nccl", connection.obstacle);
      link_ = std::move(connection.link);
      description_ = link_ ? "rows travel from GPU to GPU over NCCL"
                           : "rows pass through page-locked memory and messages (" + connection.obstacle + ")";
      return;
    }
  }
  if (device.is_gpu()) description_ = "rows pass through page-locked memory and messages (exchange staged)";
}

void DeviceExchanges::begin_epoch(const std::vector<std::shared_ptr<const HaloPlan>>& plans, StreamRef stream)
{
  if (!link_) return;
  for (std::size_t l = 0; l < plans.size(); ++l) {
    layouts_[l].fit(*plans[l]);
    features_[l]->set_plan(plans[l], layouts_[l], stream);
  }
  positions_->set_plan(plans.back(), layouts_.back(), stream);
}

std::vector<HaloSlots> DeviceExchanges::slots() const
{
  std::vector<HaloSlots> all;
  for (const auto& exchange : features_) {
    const auto places = exchange->layout().slots(exchange->plan());
    all.push_back({{places.begin(), places.end()}, exchange->layout().num_slots()});
  }
  return all;
}

HaloExchange::Traffic DeviceExchanges::feature_traffic() const
{
  HaloExchange::Traffic sum;
  for (const auto& exchange : features_) {
    sum.messages += exchange->traffic().messages;
    sum.bytes += exchange->traffic().bytes;
  }
  return sum;
}

std::int64_t DeviceExchanges::arrangement() const
{
  std::int64_t sum = positions_ ? positions_->arrangement() : 0;
  for (const auto& exchange : features_) sum += exchange->arrangement();
  return sum;
}

}  // namespace tessera
