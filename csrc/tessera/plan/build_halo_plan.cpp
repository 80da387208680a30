// SPDX-License-Identifier: MIT
#include "tessera/plan/build_halo_plan.hpp"

#include <cstring>

#include "tessera/base/error.hpp"

namespace tessera {

HaloPlan build_halo_plan(std::int64_t epoch, std::int64_t num_owned, const std::vector<NeededRows>& needed,
                         Communicator& communicator)
{
  const int num_ranks = communicator.num_ranks();
  std::vector<std::int64_t> requests, bytes_to(num_ranks, 0), num_receive(num_ranks, 0);
  int previous_rank = -1;
  for (const NeededRows& part : needed) {
    TESSERA_REQUIRE(part.rank > previous_rank && part.rank < num_ranks,
                    "needed rows of rank {} after those of rank {}, expected ascending ranks below {}", part.rank,
                    previous_rank, num_ranks);
    previous_rank = part.rank;
    requests.insert(requests.end(), part.rows.begin(), part.rows.end());
    num_receive[part.rank] = static_cast<std::int64_t>(part.rows.size());
    bytes_to[part.rank] = num_receive[part.rank] * static_cast<std::int64_t>(sizeof(std::int64_t));
  }
  std::vector<std::int64_t> bytes_from;
  const auto received = communicator.all_to_all(std::as_bytes(std::span(requests)), bytes_to, bytes_from);

  HaloPlan plan{epoch, num_owned, 0, {}};
  const std::byte* next = received.data();
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (bytes_from[rank] == 0 && num_receive[rank] == 0) continue;
    HaloPeer peer{rank, std::vector<std::int64_t>(bytes_from[rank] / sizeof(std::int64_t)), plan.num_halo,
                  num_receive[rank]};
    if (bytes_from[rank] > 0) std::memcpy(peer.send_rows.data(), next, bytes_from[rank]);
    next += bytes_from[rank];
    plan.num_halo += peer.num_receive;
    plan.peers.push_back(std::move(peer));
  }
  plan.validate();
  return plan;
}

}  // namespace tessera
