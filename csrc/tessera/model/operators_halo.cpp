// SPDX-License-Identifier: MIT
// Halo exchanges as operators, each in two parts so that local work can run between them.
//
//     extended rows: [ owned, padded to N | halo, padded to H ]
//
// A ticket ties a wait to its start: whoever reorders the program must keep data dependencies. Its first number is the
// row length in flight, which the wait compares with the row length of its output. Handle 0 stands for "no exchange":
// one rank, where images of owned atoms are edges to owned rows and all halo rows are padding.
//
// Where the exchange set has exchanges on the device, rows go from device to device in the order of PyTorch's stream,
// and the halo is laid out in their slots. Else rows of a GPU pass through pinned host memory, over the same exchange
// as those of the CPU: start copies all owned (or halo) rows down and waits for them, wait copies what came up again
// without waiting.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <limits>

#include "tessera/base/error.hpp"
#include "tessera/model/exchange_set.hpp"
#include "tessera/model/operator_support.hpp"

namespace tessera::operators {
namespace {

/// How the rows of an operator travel: neither (handle 0), staged through the host, or directly.
struct Route {
  HaloExchange* staged = nullptr;
  DeviceHaloExchange* direct = nullptr;

  [[nodiscard]] bool is_open() const { return staged != nullptr || direct != nullptr; }
  [[nodiscard]] const HaloPlan& plan() const { return direct ? direct->plan() : staged->plan(); }
  /// Halo rows that the exchange fills.
  [[nodiscard]] std::int64_t num_halo() const
  {
    if (direct) return direct->layout().num_slots();
    return staged ? staged->plan().num_halo : 0;
  }
  [[nodiscard]] std::int64_t channels_in_flight() const
  {
    return direct ? direct->channels_in_flight() : staged->channels_in_flight();
  }
};

Device device_of(at::Device device) { return {device.is_cuda() ? device.index() : -1}; }

StreamRef stream_like(const at::Tensor& tensor)
{
  if (!tensor.is_cuda()) return {};
  return {device_of(tensor.device()), stream_of(tensor)};
}

/// The route that `plan` names; checks its rows against the padded extents.
Route find_route(const char* op, const at::Tensor& plan, std::int64_t list, std::int64_t num_owned,
                 std::int64_t num_halo)
{
  require_on(at::kCPU, op, "plan", plan, at::kLong, {1});
  const auto handle = *plan.const_data_ptr<std::int64_t>();
  if (handle == 0) return {};
  ExchangeSet& set = ExchangeSet::find(handle);
  Route route{&set.exchange(list), set.device_exchange(list)};
  if (route.direct) {
    TESSERA_REQUIRE(route.direct->device() == device_of(operator_device()),
                    "tessera::{}: the exchange of list {} moves rows of device {} (-1 is the host), found rows on {}",
                    op, list, route.direct->device().gpu, operator_device().str());
  }
  const HaloPlan& rows = route.plan();
  TESSERA_REQUIRE(rows.num_owned <= num_owned && route.num_halo() <= num_halo,
                  "tessera::{}: the plan of list {} (epoch {}) has {} owned and {} halo rows, the arrays have room for "
                  "{} and {}: pass the arrays and the plan of one epoch",
                  op, list, rows.epoch, rows.num_owned, route.num_halo(), num_owned, num_halo);
  return route;
}

Scalar scalar_of(at::ScalarType type) { return type == at::kFloat ? Scalar::float32 : Scalar::float64; }

void require_leading(const char* op, const char* name, const at::Tensor& tensor)
{
  TESSERA_REQUIRE(tensor.dim() >= 1, "tessera::{}: {} must have at least one extent, found a scalar", op, name);
}

/// Host memory for rows like these: the rows themselves on the CPU, a pinned buffer for those of a GPU.
at::Tensor host_buffer(const at::Tensor& rows)
{
  TESSERA_REQUIRE(
      !is_capturing(stream_like(rows)),
      "expected exchanges on the device for the capture of a graph, found rows staged through the host, which "
      "cannot be replayed: connect the ranks with NCCL, or run without a graph");
  return rows.is_cpu() ? rows : at::empty(rows.sizes(), rows.options().device(at::kCPU).pinned_memory(true));
}

/// The rows on the host, once they have arrived there.
at::Tensor to_host(const at::Tensor& rows)
{
  auto host = host_buffer(rows);
  if (!rows.is_cpu()) host.copy_(rows);
  return host;
}

at::Tensor make_ticket(std::int64_t channels, const at::TensorOptions& options)
{
  return at::full({2}, static_cast<double>(channels), options);
}

/// On a GPU the ticket itself is not read, which would wait for the device: the exchange knows what is in flight.
void check_ticket(const char* op, const at::Tensor& ticket, const Route& route, std::int64_t channels)
{
  const auto type = require_floating(op, "ticket", ticket, {2});
  std::int64_t in_flight = channels;
  if (!ticket.is_cpu()) {
    if (route.is_open()) in_flight = route.channels_in_flight();
  } else {
    in_flight = type == at::kFloat ? static_cast<std::int64_t>(*ticket.const_data_ptr<float>())
                                   : static_cast<std::int64_t>(*ticket.const_data_ptr<double>());
  }
  TESSERA_REQUIRE(in_flight == channels,
                  "tessera::{}: the ticket is for rows of {} channels, the output has {}: pass the ticket of the "
                  "matching start",
                  op, in_flight, channels);
}

at::Tensor halo_start(const at::Tensor& payload, const at::Tensor& plan, const at::Tensor& halo, std::int64_t list)
{
  const auto type = require_floating("halo_start", "payload", payload, {kAny, kAny});
  require_leading("halo_start", "halo", halo);
  const Route route = find_route("halo_start", plan, list, payload.size(0), halo.size(0));
  if (route.direct) {
    route.direct->start_forward(payload.const_data_ptr(), payload.size(1), scalar_of(type), stream_like(payload));
  } else if (route.staged) {
    route.staged->start_forward(to_host(payload).const_data_ptr(), payload.size(1), scalar_of(type));
  }
  return make_ticket(payload.size(1), payload.options());
}

at::Tensor halo_wait(const at::Tensor& payload, const at::Tensor& ticket, const at::Tensor& plan,
                     const at::Tensor& halo, std::int64_t list)
{
  const char* op = "halo_wait";
  require_floating(op, "payload", payload, {kAny, kAny});
  require_leading(op, "halo", halo);
  const auto num_owned = payload.size(0), num_halo = halo.size(0);
  const Route route = find_route(op, plan, list, num_owned, num_halo);
  check_ticket(op, ticket, route, payload.size(1));

  auto extended = at::empty({num_owned + num_halo, payload.size(1)}, payload.options());
  extended.narrow(0, 0, num_owned).copy_(payload);
  const auto filled = route.num_halo();
  auto rows = extended.narrow(0, num_owned, filled);
  if (route.direct) {
    route.direct->wait_forward(rows.mutable_data_ptr(), stream_like(rows));
  } else if (route.staged) {
    const auto host = host_buffer(rows);
    route.staged->wait_forward(host.mutable_data_ptr());
    if (!rows.is_cpu()) rows.copy_(host, /*non_blocking=*/true);
  }
  extended.narrow(0, num_owned + filled, num_halo - filled).zero_();
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
  const Route route = find_route(op, plan, list, num_owned, halo.size(0));
  const auto rows = grad.narrow(0, num_owned, route.num_halo());
  if (route.direct) {
    route.direct->start_reverse(rows.const_data_ptr(), grad.size(1), scalar_of(type), stream_like(rows));
  } else if (route.staged) {
    route.staged->start_reverse(to_host(rows).const_data_ptr(), grad.size(1), scalar_of(type));
  }
  return make_ticket(grad.size(1), grad.options());
}

at::Tensor halo_reverse_wait(const at::Tensor& ticket, const at::Tensor& plan, const at::Tensor& owned,
                             std::int64_t channels, std::int64_t list)
{
  const char* op = "halo_reverse_wait";
  require_leading(op, "owned", owned);
  constexpr auto kUnbounded = std::numeric_limits<std::int64_t>::max();  // no halo array here
  const Route route = find_route(op, plan, list, owned.size(0), kUnbounded);
  check_ticket(op, ticket, route, channels);
  auto share = at::zeros({owned.size(0), channels}, ticket.options());
  if (route.direct) {
    route.direct->wait_reverse(share.mutable_data_ptr(), stream_like(share));
  } else if (route.staged) {
    auto host = host_buffer(share);
    if (!share.is_cpu()) host.zero_();
    route.staged->wait_reverse(host.mutable_data_ptr());
    if (!share.is_cpu()) share.copy_(host, /*non_blocking=*/true);
  }
  return share;
}

void add_kernels(torch::Library& m)
{
  m.impl("halo_start", &Recorded<&halo_start>::call);
  m.impl("halo_wait", &Recorded<&halo_wait>::call);
  m.impl("halo_reverse_start", &Recorded<&halo_reverse_start>::call);
  m.impl("halo_reverse_wait", &Recorded<&halo_reverse_wait>::call);
}

}  // namespace

TORCH_LIBRARY_IMPL(tessera, CPU, m) { add_kernels(m); }
TORCH_LIBRARY_IMPL(tessera, CUDA, m) { add_kernels(m); }

}  // namespace tessera::operators
