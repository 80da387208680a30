// SPDX-License-Identifier: MIT
#include "tessera/plan/halo_layout.hpp"

#include <algorithm>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

std::int64_t num_sent(const HaloPeer& peer) { return static_cast<std::int64_t>(peer.send_rows.size()); }

bool comes_before(const HaloRoom& room, int rank) { return room.rank < rank; }

}  // namespace

HaloLayout HaloLayout::exact(const HaloPlan& plan)
{
  HaloLayout layout;
  for (const HaloPeer& peer : plan.peers) layout.rooms_.push_back({peer.rank, num_sent(peer), peer.num_receive, 0, 0});
  layout.place();
  return layout;
}

std::int64_t HaloLayout::grown(std::int64_t count) noexcept { return count == 0 ? 0 : count + count / 10 + 16; }

bool HaloLayout::fit(const HaloPlan& plan)
{
  bool has_changed = false;
  const auto make_room = [&](std::int64_t& capacity, std::int64_t count) {
    if (count <= capacity) return;
    capacity = grown(count);
    has_changed = true;
  };
  for (const HaloPeer& peer : plan.peers) {
    auto room = std::lower_bound(rooms_.begin(), rooms_.end(), peer.rank, comes_before);
    if (room == rooms_.end() || room->rank != peer.rank) {
      if (num_sent(peer) == 0 && peer.num_receive == 0) continue;
      room = rooms_.insert(room, {peer.rank, 0, 0, 0, 0});
    }
    make_room(room->send_capacity, num_sent(peer));
    make_room(room->receive_capacity, peer.num_receive);
  }
  if (has_changed) place();
  return has_changed;
}

void HaloLayout::place()
{
  num_slots_ = num_send_ = 0;
  for (HaloRoom& room : rooms_) {
    room.first_send = num_send_;
    room.first_slot = num_slots_;
    num_send_ += room.send_capacity;
    num_slots_ += room.receive_capacity;
  }
}

const HaloRoom& HaloLayout::room_of(const HaloPeer& peer) const
{
  const auto room = std::lower_bound(rooms_.begin(), rooms_.end(), peer.rank, comes_before);
  const bool is_known = room != rooms_.end() && room->rank == peer.rank;
  static constexpr HaloRoom kNone;
  const HaloRoom& found = is_known ? *room : kNone;
  TESSERA_REQUIRE(num_sent(peer) <= found.send_capacity && peer.num_receive <= found.receive_capacity,
                  "expected room for {} rows to and {} rows from peer {}, found {} and {}: fit the layout to the plan "
                  "of each epoch",
                  num_sent(peer), peer.num_receive, peer.rank, found.send_capacity, found.receive_capacity);
  return found;
}

std::vector<std::int64_t> HaloLayout::slots(const HaloPlan& plan) const
{
  std::vector<std::int64_t> slots;
  slots.reserve(plan.num_halo);
  for (const HaloPeer& peer : plan.peers) {
    if (peer.num_receive == 0) continue;
    const std::int64_t first = room_of(peer).first_slot;
    for (std::int64_t k = 0; k < peer.num_receive; ++k) slots.push_back(first + k);
  }
  return slots;
}

}  // namespace tessera
