// SPDX-License-Identifier: MIT
#include "arrays.hpp"
#include "bindings.hpp"
#include "tessera/base/error.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/model/exchange_set.hpp"

namespace py = pybind11;

namespace tessera {
namespace {

using bindings::Array;

/// A rank that is its own peer: each halo row copies one of its owned rows.
std::shared_ptr<const HaloPlan> self_plan(const Array<std::int64_t>& halo_rows, std::int64_t num_owned)
{
  auto plan = std::make_shared<HaloPlan>();
  plan->num_owned = num_owned;
  plan->num_halo = halo_rows.size();
  if (plan->num_halo > 0) {
    const auto rows = bindings::as_span(halo_rows);
    plan->peers.push_back({0, {rows.begin(), rows.end()}, 0, plan->num_halo});
  }
  plan->validate();
  return plan;
}

std::unique_ptr<ExchangeSet> self_exchange(const std::vector<Array<std::int64_t>>& halo_rows, std::int64_t num_owned)
{
  const std::shared_ptr<Communicator> communicator = make_serial_communicator();
  std::vector<std::unique_ptr<HaloExchange>> exchanges;
  for (const auto& rows : halo_rows) {
    const auto tag = static_cast<int>(exchanges.size());
    exchanges.push_back(std::make_unique<HaloExchange>(self_plan(rows, num_owned), communicator, tag));
  }
  return std::make_unique<ExchangeSet>(std::move(exchanges));
}

}  // namespace

void register_exchange(py::module_& m)
{
  py::class_<ExchangeSet>(
      m, "SelfExchange",
      "One rank that sends its own rows to itself: halo_rows[l][k] is the owned row which halo row\n"
      "k of list l copies. Alive as long as the object; `handle` is the operators' `plan`.")
      .def(py::init(&self_exchange), py::arg("halo_rows"), py::arg("num_owned"))
      .def_property_readonly("handle", &ExchangeSet::handle)
      .def(
          "messages", [](ExchangeSet& set, std::int64_t list) { return set.exchange(list).traffic().messages; },
          py::arg("list"), "Messages that list `list` has sent so far.");
}

}  // namespace tessera
