// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/partition/curve.hpp"
#include "tessera/partition/splitters.hpp"

namespace tessera {

/// How a rank finds the ranks whose atoms may be senders of its receivers (level 1 of the search).
enum class PeerScheme {
  multi_box,    ///< a few boxes a rank, gathered from all ranks; the default
  rank_box,     ///< one box a rank
  key_range,    ///< from the splitters alone: no gather
  all_gather,   ///< every atom goes to every rank
  spatial_bin,  ///< occupied bins as wide as the reach, through a directory spread over the ranks
};

/// @throws Error(collective) naming the choices if `name` is none of them ("multi-box", "rank-box", "key-range",
/// "all-gather", "spatial-bin").
[[nodiscard]] PeerScheme parse_peer_scheme(std::string_view name);

/// Other shards' atoms that may lie within `reach` of this shard's, each once whatever the number of its images.
struct Candidates {
  std::vector<Vec3> positions;     ///< Å, as their owners hold them (not wrapped)
  std::vector<std::int32_t> rank;  ///< owner, ascending
  std::vector<std::int64_t> row;   ///< row at the owner, ascending within a rank
  std::int64_t num_peers = 0;      ///< ranks that sent any
  [[nodiscard]] std::int64_t count() const noexcept { return static_cast<std::int64_t>(row.size()); }
};

struct CandidateQuery {
  PeerScheme scheme = PeerScheme::multi_box;
  int boxes_per_rank = 8;
  double reach = 0;                      ///< Å, cutoff + skin
  const Curve* curve = nullptr;          ///< of the last cut
  const Splitters* splitters = nullptr;  ///< of the last cut; key_range needs both
  double drift = 0;                      ///< Å, how far any atom (of any rank) may have moved since the cut
};

/// Gathers the candidates of this rank; every rank calls this.
///
/// Conservative for every scheme: contains each atom of another rank of which any image lies within `reach` of an
/// owned atom of this rank. An atom goes to a peer only if one of its images comes within `reach` of the peer's region
/// (box, boxes, bins), so that what travels is close to what is needed. Images of this rank's own atoms are no
/// candidates: the exact search finds them among the owned positions.
/// @param positions owned, Å, anywhere (wrapped inside).
[[nodiscard]] Candidates find_candidates(const CandidateQuery& query, std::span<const Vec3> positions, const Box& box,
                                         Communicator& communicator);

}  // namespace tessera
