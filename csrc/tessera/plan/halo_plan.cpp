// SPDX-License-Identifier: MIT
#include "tessera/plan/halo_plan.hpp"

#include "tessera/base/error.hpp"

namespace tessera {

void HaloPlan::validate() const
{
  std::int64_t next = 0;
  int previous_rank = -1;
  for (const HaloPeer& peer : peers) {
    TESSERA_REQUIRE(peer.rank > previous_rank,
                    "halo plan of epoch {}: peer {} follows peer {}, expected ascending ranks", epoch, peer.rank,
                    previous_rank);
    previous_rank = peer.rank;
    TESSERA_REQUIRE(peer.num_receive >= 0 && peer.first_halo == next,
                    "halo plan of epoch {}: the {} rows of peer {} start at {}, expected {}", epoch, peer.num_receive,
                    peer.rank, peer.first_halo, next);
    next += peer.num_receive;
    for (const auto row : peer.send_rows) {
      TESSERA_REQUIRE(row >= 0 && row < num_owned, "halo plan of epoch {}: row {} for peer {} is not one of {} owned",
                      epoch, row, peer.rank, num_owned);
    }
  }
  TESSERA_REQUIRE(next == num_halo, "halo plan of epoch {}: the peers fill {} halo rows, expected {}", epoch, next,
                  num_halo);
}

}  // namespace tessera
