// SPDX-License-Identifier: MIT
#include "tessera/model/exchange_set.hpp"

#include <map>
#include <mutex>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

/// Compiled code carries numbers, not pointers: this is where a handle turns back into its set.
struct Registry {
  std::mutex mutex;
  std::map<std::int64_t, ExchangeSet*> sets;
  std::int64_t next = 1;  // 0 means "no exchange"
};

Registry& registry()
{
  static Registry instance;
  return instance;
}

}  // namespace

ExchangeSet::ExchangeSet(std::vector<std::unique_ptr<HaloExchange>> exchanges,
                         std::vector<std::shared_ptr<DeviceHaloExchange>> on_device)
    : exchanges_(std::move(exchanges)), on_device_(std::move(on_device))
{
  TESSERA_REQUIRE(on_device_.empty() || on_device_.size() == exchanges_.size(),
                  "expected an exchange on the device for each of {} lists or none, found {}", exchanges_.size(),
                  on_device_.size());
  for (const auto& exchange : on_device_) {
    TESSERA_REQUIRE(exchange != nullptr, "expected an exchange on the device for each list, found a list without");
  }
  auto& all = registry();
  const std::lock_guard lock(all.mutex);
  handle_ = all.next++;
  all.sets.emplace(handle_, this);
}

ExchangeSet::~ExchangeSet()
{
  auto& all = registry();
  const std::lock_guard lock(all.mutex);
  all.sets.erase(handle_);
}

void ExchangeSet::check(std::int64_t list) const
{
  TESSERA_REQUIRE(list >= 0 && list < static_cast<std::int64_t>(exchanges_.size()),
                  "exchange set {} has {} lists, the model asked for list {}: register one exchange for each cutoff "
                  "of the passport",
                  handle_, exchanges_.size(), list);
}

HaloExchange& ExchangeSet::exchange(std::int64_t list)
{
  check(list);
  return *exchanges_[list];
}

DeviceHaloExchange* ExchangeSet::device_exchange(std::int64_t list)
{
  check(list);
  return on_device_.empty() ? nullptr : on_device_[list].get();
}

ExchangeSet& ExchangeSet::find(std::int64_t handle)
{
  auto& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.sets.find(handle);
  TESSERA_REQUIRE(found != all.sets.end(),
                  "no living exchange set has handle {} ({} are registered): keep the ExchangeSet of the current epoch "
                  "alive while the model runs",
                  handle, all.sets.size());
  return *found->second;
}

}  // namespace tessera
