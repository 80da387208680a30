// SPDX-License-Identifier: MIT
#include "tessera/engine/list_arrays.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "tessera/base/error.hpp"

namespace tessera {

HaloSlots HaloSlots::identity(std::int64_t num_halo)
{
  HaloSlots slots{std::vector<std::int32_t>(num_halo), num_halo};
  std::iota(slots.slot.begin(), slots.slot.end(), 0);
  return slots;
}

ListArrays::ListArrays(Device device)
    : counts_(device),
      slot_(device),
      wide_slot_(device),
      halo_row_(device),
      target_(device),
      halo_element_(device),
      keep_(device),
      place_(device),
      keep_by_sender_(device),
      place_by_sender_(device),
      status_(device),
      edge_vector_(device),
      edge_receiver_(device),
      edge_sender_(device),
      receiver_range_(device),
      edge_order_(device),
      sender_range_(device)
{
  counts_.resize(2, 0);
  status_.resize(2, 0);
}

void ListArrays::begin_epoch(const DeviceList& list, std::int64_t num_owned, const HaloSlots& slots,
                             const HaloSlots& wide, std::span<const std::int32_t> halo_elements,
                             std::int64_t least_halo, StreamRef stream)
{
  const auto num_halo = static_cast<std::int64_t>(slots.slot.size());
  TESSERA_REQUIRE(num_halo == list.plan->num_halo && static_cast<std::int64_t>(halo_elements.size()) == num_halo,
                  "expected a slot and an element for each of {} halo rows, found {} and {}", list.plan->num_halo,
                  num_halo, halo_elements.size());
  extents_.halo = std::max(least_halo, slots.num_slots);
  std::vector<std::int32_t> halo_row(extents_.halo, -1), target(extents_.halo, -1);
  std::vector<std::int64_t> element(extents_.halo, 0);
  const std::vector<std::int32_t> wide_row = list.wide_row.to_host(stream);
  for (std::int64_t k = 0; k < num_halo; ++k) {
    const std::int32_t slot = slots.slot[k];
    halo_row[slot] = static_cast<std::int32_t>(k);
    target[slot] = wide.slot[wide_row[k] - num_owned];
    element[slot] = halo_elements[k];
  }
  const std::array<std::int64_t, 2> counts{num_owned, list.num_edges};
  counts_.assign(counts, stream, 0);
  slot_.assign(slots.slot, stream);
  wide_slot_.assign(wide.slot, stream);
  halo_row_.assign(halo_row, stream);
  target_.assign(target, stream);
  halo_element_.assign(element, stream);
  synchronize(stream);  // the sources end here
}

void ListArrays::make_room(std::int64_t rows, std::int64_t edges, std::int64_t pairs)
{
  extents_.rows = rows;
  extents_.edges = edges;
  extents_.pairs = pairs;
  for (auto* array : {&keep_, &place_, &keep_by_sender_, &place_by_sender_}) array->resize(pairs + 1);
  edge_vector_.resize(3 * edges);
  for (auto* array : {&edge_receiver_, &edge_sender_, &edge_order_}) array->resize(edges);
  receiver_range_.resize(2 * rows);
  sender_range_.resize(2 * (rows + extents_.halo));
}

ListView ListArrays::view(const DeviceList& list)
{
  ListView view;
  view.extents = extents_;
  view.cutoff = list.cutoff;
  view.num_owned = counts_.data();
  view.num_pairs = counts_.data() + 1;
  view.receiver = list.receiver.data();
  view.sender = list.sender.data();
  view.own_sender = list.own_sender.data();
  view.shift = list.shift.data();
  view.sender_order = list.sender_order.data();
  view.first_of_receiver = list.first_of_receiver.data();
  view.first_of_sender = list.first_of_sender.data();
  view.slot = slot_.data();
  view.wide_slot = wide_slot_.data();
  view.halo_row = halo_row_.data();
  view.target = target_.data();
  view.keep = keep_.data();
  view.place = place_.data();
  view.keep_by_sender = keep_by_sender_.data();
  view.place_by_sender = place_by_sender_.data();
  view.status = status_.data();
  view.edge_vector = edge_vector_.data();
  view.edge_receiver = edge_receiver_.data();
  view.edge_sender = edge_sender_.data();
  view.receiver_range = receiver_range_.data();
  view.edge_order = edge_order_.data();
  view.sender_range = sender_range_.data();
  view.halo_element = halo_element_.data();
  return view;
}

}  // namespace tessera
