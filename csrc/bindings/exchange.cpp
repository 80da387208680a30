// SPDX-License-Identifier: MIT
#include <optional>

#include "arrays.hpp"
#include "bindings.hpp"
#include "tessera/base/error.hpp"
#include "tessera/comm/communicator_link.hpp"
#include "tessera/comm/nccl.hpp"
#include "tessera/comm/virtual.hpp"
#include "tessera/device/gpu.hpp"
#include "tessera/model/exchange_set.hpp"
#include "tessera/plan/build_halo_plan.hpp"

namespace py = pybind11;

namespace tessera {
namespace {

using bindings::Array;
using Rows = std::vector<std::int64_t>;

constexpr int kLinkTag = 1000;  // above those of lists

/// One rank that is its own peer.
struct SelfExchange : ExchangeSet {
  using ExchangeSet::ExchangeSet;
};

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

std::shared_ptr<DeviceHaloExchange> device_exchange(const std::shared_ptr<const HaloPlan>& plan,
                                                    const std::shared_ptr<DeviceLink>& link, bool headroom)
{
  HaloLayout layout = HaloLayout::exact(*plan);
  if (headroom) {
    layout = HaloLayout();
    layout.fit(*plan);
  }
  const StreamRef stream{link->device(), nullptr};
  const CurrentDevice scope(stream.device);
  auto exchange = std::make_shared<DeviceHaloExchange>(link);
  exchange->set_plan(plan, std::move(layout), stream);
  synchronize(stream);  // whatever stream the operators will run on
  return exchange;
}

std::unique_ptr<SelfExchange> self_exchange(const std::vector<Array<std::int64_t>>& halo_rows, std::int64_t num_owned,
                                            std::optional<int> device, bool headroom)
{
  const std::shared_ptr<Communicator> communicator = make_serial_communicator();
  std::vector<std::unique_ptr<HaloExchange>> exchanges;
  std::vector<std::shared_ptr<DeviceHaloExchange>> on_device;
  for (const auto& rows : halo_rows) {
    const auto tag = static_cast<int>(exchanges.size());
    const auto plan = self_plan(rows, num_owned);
    exchanges.push_back(std::make_unique<HaloExchange>(plan, communicator, tag));
    if (device) on_device.push_back(device_exchange(plan, link_to_self(Device{*device}), headroom));
  }
  return std::make_unique<SelfExchange>(std::move(exchanges), std::move(on_device));
}

std::shared_ptr<DeviceLink> link_named(const std::string& name, const std::shared_ptr<Communicator>& communicator)
{
  if (name == "host") return link_over(communicator, kLinkTag);
  TESSERA_REQUIRE(name == "nccl", "expected the link 'host' or 'nccl', found '{}'", name);
  const NcclConnection nccl = connect_nccl(*communicator, Device{communicator->rank()});
  TESSERA_REQUIRE(nccl.link != nullptr, "expected a GPU for each rank, found that {}", nccl.obstacle);
  return nccl.link;
}

py::list connect_virtual_ranks(const std::vector<std::vector<Rows>>& needed, const std::vector<std::int64_t>& num_owned,
                               const std::string& link)
{
  const auto num_ranks = static_cast<int>(num_owned.size());
  for (const auto& owners : needed) {
    if (needed.size() != num_owned.size() || owners.size() != num_owned.size()) {
      throw py::value_error("expected needed[reader][owner] for the ranks of num_owned");
    }
  }
  std::vector<std::unique_ptr<ExchangeSet>> sets(num_ranks);
  {
    const py::gil_scoped_release release;
    run_virtual_ranks(num_ranks, [&](const std::shared_ptr<Communicator>& communicator) {
      const int rank = communicator->rank();
      std::vector<NeededRows> rows;
      for (int owner = 0; owner < num_ranks; ++owner) rows.push_back({owner, needed[rank][owner]});
      const auto plan = std::make_shared<HaloPlan>(build_halo_plan(1, num_owned[rank], rows, *communicator));
      std::vector<std::unique_ptr<HaloExchange>> exchanges;
      exchanges.push_back(std::make_unique<HaloExchange>(plan, communicator, 0));
      std::vector<std::shared_ptr<DeviceHaloExchange>> on_device;
      if (link != "staged") on_device.push_back(device_exchange(plan, link_named(link, communicator), true));
      sets[rank] = std::make_unique<ExchangeSet>(std::move(exchanges), std::move(on_device));
    });
  }
  py::list out;
  for (auto& set : sets) out.append(py::cast(std::move(set)));
  return out;
}

std::int64_t num_messages(ExchangeSet& set, std::int64_t list)
{
  const DeviceHaloExchange* direct = set.device_exchange(list);
  return direct ? direct->traffic().messages : set.exchange(list).traffic().messages;
}

py::array_t<std::int64_t> slots(ExchangeSet& set, std::int64_t list)
{
  const DeviceHaloExchange* direct = set.device_exchange(list);
  const HaloPlan& plan = set.exchange(list).plan();
  return bindings::to_array<std::int64_t>((direct ? direct->layout() : HaloLayout::exact(plan)).slots(plan));
}

}  // namespace

void register_exchange(py::module_& m)
{
  py::class_<ExchangeSet>(m, "ExchangeSet",
                          "Exchanges of one rank, one a list. Alive as long as the object; `handle` is the operators' "
                          "`plan`.")
      .def_property_readonly("handle", &ExchangeSet::handle)
      .def("messages", &num_messages, py::arg("list"), "Messages that list `list` has sent so far.")
      .def("slots", &slots, py::arg("list"),
           "Where each halo row of list `list` stands among the halo rows of arrays.");
  py::class_<SelfExchange, ExchangeSet>(
      m, "SelfExchange",
      "One rank that sends its own rows to itself: halo_rows[l][k] is the owned row which halo row\n"
      "k of list l copies. With `device` (-1: the host, else a GPU) rows stay there instead of being staged through\n"
      "the host; with `headroom`, too, halo rows stand in slots with head-room.")
      .def(py::init(&self_exchange), py::arg("halo_rows"), py::arg("num_owned"), py::arg("device") = py::none(),
           py::arg("headroom") = false);
  m.def("connect_virtual_ranks", &connect_virtual_ranks,
        "Exchanges of one list between ranks of this process, whose operators run on a thread each: needed[r][o] are\n"
        "the rows of rank o that rank r copies. `link`: 'staged' through the host, or on the device with head-room,\n"
        "over 'host' (tensors on the CPU) or 'nccl' (rank r on GPU r).",
        py::arg("needed"), py::arg("num_owned"), py::arg("link"));
}

}  // namespace tessera
