// SPDX-License-Identifier: MIT
// Halo exchanges as operators, each in two parts so that local work can run between them.
//
//     extended rows: [ owned, padded to N | halo, padded to H ]
//
// A ticket ties a wait to its start: whoever reorders the program must keep data dependencies. Its first number is the
// row length in flight, which the wait compares with the row length of its output. Handle 0 stands for "no exchange":
// one rank, where images of owned atoms are edges to owned rows and all halo rows are padding.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <cstring>
#include <limits>

#include "tessera/base/error.hpp"
#include "tessera/model/exchange_set.hpp"
#include "tessera/model/operator_support.hpp"

namespace tessera::operators {
namespace {

/// The exchange that `plan` names, nullptr for handle 0; checks its rows against the padded extents.
HaloExchange* find_exchange(const char* op, const at::Tensor& plan, std::int64_t list, std::int64_t num_owned,
                            std::int64_t num_halo)
{
  require(op, "plan", plan, at::kLong, {1});
  const auto handle = *plan.const_data_ptr<std::int64_t>();
  if (handle == 0) return nullptr;
  auto& exchange = ExchangeSet::find(handle).exchange(list);
  const auto& rows = exchange.plan();
  TESSERA_REQUIRE(rows.num_owned <= num_owned && rows.num_halo <= num_halo,
                  "tessera::{}: the plan of list {} (epoch {}) has {} owned and {} halo rows, the arrays have room for "
                  "{} and {}: pass the arrays and the plan of one epoch",
                  op, list, rows.epoch, rows.num_owned, rows.num_halo, num_owned, num_halo);
  return &exchange;
}

Scalar scalar_of(at::ScalarType type) { return type == at::kFloat ? Scalar::float32 : Scalar::float64; }

void require_leading(const char* op, const char* name, const at::Tensor& tensor)
{
  TESSERA_REQUIRE(tensor.dim() >= 1, "tessera::{}: {} must have at least one extent, found a scalar", op, name);
}

at::Tensor make_ticket(std::int64_t channels, const at::TensorOptions& options)
{
  auto ticket = at::zeros({2}, options);
  if (ticket.scalar_type() == at::kFloat) {
    *ticket.mutable_data_ptr<float>() = static_cast<float>(channels);
  } else {
    *ticket.mutable_data_ptr<double>() = static_cast<double>(channels);
  }
  return ticket;
}

void check_ticket(const char* op, const at::Tensor& ticket, std::int64_t channels)
{
  const auto type = require_floating(op, "ticket", ticket, {2});
  const auto in_flight = type == at::kFloat ? static_cast<std::int64_t>(*ticket.const_data_ptr<float>())
                                            : static_cast<std::int64_t>(*ticket.const_data_ptr<double>());
  TESSERA_REQUIRE(in_flight == channels,
                  "tessera::{}: the ticket is for rows of {} channels, the output has {}: pass the ticket of the "
                  "matching start",
                  op, in_flight, channels);
}

/// Zeroes rows [first, last) of a contiguous matrix.
void zero_rows(at::Tensor& matrix, std::int64_t first, std::int64_t last)
{
  const auto bytes = matrix.size(1) * static_cast<std::int64_t>(matrix.element_size());
  std::memset(static_cast<char*>(matrix.mutable_data_ptr()) + first * bytes, 0, (last - first) * bytes);
}

at::Tensor halo_start(const at::Tensor& payload, const at::Tensor& plan, const at::Tensor& halo, std::int64_t list)
{
  const auto type = require_floating("halo_start", "payload", payload, {kAny, kAny});
  require_leading("halo_start", "halo", halo);
  if (auto* exchange = find_exchange("halo_start", plan, list, payload.size(0), halo.size(0))) {
    exchange->start_forward(payload.const_data_ptr(), payload.size(1), scalar_of(type));
  }
  return make_ticket(payload.size(1), payload.options());
}

at::Tensor halo_wait(const at::Tensor& payload, const at::Tensor& ticket, const at::Tensor& plan,
                     const at::Tensor& halo, std::int64_t list)
{
  const char* op = "halo_wait";
  require_floating(op, "payload", payload, {kAny, kAny});
  require_leading(op, "halo", halo);
  check_ticket(op, ticket, payload.size(1));
  const auto num_owned = payload.size(0), num_halo = halo.size(0);
  auto* exchange = find_exchange(op, plan, list, num_owned, num_halo);

  auto extended = at::empty({num_owned + num_halo, payload.size(1)}, payload.options());
  std::memcpy(extended.mutable_data_ptr(), payload.const_data_ptr(), payload.nbytes());
  const auto filled = exchange ? exchange->plan().num_halo : 0;
  if (exchange) exchange->wait_forward(static_cast<char*>(extended.mutable_data_ptr()) + payload.nbytes());
  zero_rows(extended, num_owned + filled, num_owned + num_halo);
  return extended;
}

at::Tensor halo_reverse_start(const at::Tensor& grad, const at::Tensor& plan, const at::Tensor& halo, std::int64_t list)
{
  const char* op = "halo_reverse_start";
  const auto type = require_floating(op, "grad_extended", grad, {kAny, kAny});
  require_leading(op, "halo", halo);
  const auto num_owned = grad.size(0) - halo.size(0);
  TESSERA_REQUIRE(num_owned >= 0, "tessera::{}: grad_extended has {} rows, fewer than the {} halo rows", op,
                  grad.size(0), halo.size(0));
  if (auto* exchange = find_exchange(op, plan, list, num_owned, halo.size(0))) {
    const auto offset = num_owned * grad.size(1) * static_cast<std::int64_t>(grad.element_size());
    exchange->start_reverse(static_cast<const char*>(grad.const_data_ptr()) + offset, grad.size(1), scalar_of(type));
  }
  return make_ticket(grad.size(1), grad.options());
}

at::Tensor halo_reverse_wait(const at::Tensor& ticket, const at::Tensor& plan, const at::Tensor& owned,
                             std::int64_t channels, std::int64_t list)
{
  const char* op = "halo_reverse_wait";
  check_ticket(op, ticket, channels);
  require_leading(op, "owned", owned);
  auto share = at::empty({owned.size(0), channels}, ticket.options());
  zero_rows(share, 0, owned.size(0));
  constexpr auto kUnbounded = std::numeric_limits<std::int64_t>::max();  // no halo array here
  if (auto* exchange = find_exchange(op, plan, list, owned.size(0), kUnbounded)) {
    exchange->wait_reverse(share.mutable_data_ptr());
  }
  return share;
}

}  // namespace

TORCH_LIBRARY_IMPL(tessera, CPU, m)
{
  m.impl("halo_start", &Recorded<&halo_start>::call);
  m.impl("halo_wait", &Recorded<&halo_wait>::call);
  m.impl("halo_reverse_start", &Recorded<&halo_reverse_start>::call);
  m.impl("halo_reverse_wait", &Recorded<&halo_reverse_wait>::call);
}

}  // namespace tessera::operators
