// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "tessera/plan/halo_exchange.hpp"

namespace tessera {

/// `owned` followed by the halo rows' values; Value is made of doubles. All ranks call this.
template <typename Value>
[[nodiscard]] std::vector<Value> extend(std::span<const Value> owned, HaloExchange& exchange)
{
  std::vector<Value> rows(owned.begin(), owned.end());
  rows.resize(owned.size() + exchange.plan().num_halo);
  exchange.start_forward(owned.data(), sizeof(Value) / sizeof(double), Scalar::float64);
  exchange.wait_forward(rows.data() + owned.size());
  return rows;
}

/// Sends what the halo rows of `rows` gathered to their owners, who add it, and drops them. All ranks call this.
template <typename Value>
void bring_home(std::vector<Value>& rows, HaloExchange& exchange)
{
  const auto num_owned = exchange.plan().num_owned;
  exchange.start_reverse(rows.data() + num_owned, sizeof(Value) / sizeof(double), Scalar::float64);
  exchange.wait_reverse(rows.data());
  rows.resize(num_owned);
}

}  // namespace tessera
