// SPDX-License-Identifier: MIT
#include "tessera/search/candidates.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/search/candidate_selection.hpp"

namespace tessera {
namespace {

constexpr std::array<std::pair<std::string_view, PeerScheme>, 5> kSchemes{{
    {"multi-box", PeerScheme::multi_box},
    {"rank-box", PeerScheme::rank_box},
    {"key-range", PeerScheme::key_range},
    {"all-gather", PeerScheme::all_gather},
    {"spatial-bin", PeerScheme::spatial_bin},
}};

struct CandidateRecord {
  std::int64_t row = 0;
  Vec3 position{};
};

Selection select(const CandidateContext& context)
{
  switch (context.query.scheme) {
    case PeerScheme::multi_box:
      return select_by_boxes(context, context.query.boxes_per_rank);
    case PeerScheme::rank_box:
      return select_by_boxes(context, 1);
    case PeerScheme::key_range:
      return select_by_keys(context);
    case PeerScheme::all_gather:
      return select_all(context);
    case PeerScheme::spatial_bin:
      return select_by_bins(context);
  }
  fail(Reach::rank, "unknown peer scheme {}", static_cast<int>(context.query.scheme));
}

/// Sends the selected rows and returns what the others selected for this rank.
Candidates exchange(const Selection& selection, std::span<const Vec3> positions, Communicator& communicator)
{
  std::vector<CandidateRecord> outgoing;
  std::vector<std::int64_t> bytes_to, bytes_from;
  for (const auto& rows : selection) {
    for (const auto row : rows) outgoing.push_back({row, positions[row]});
    bytes_to.push_back(static_cast<std::int64_t>(rows.size() * sizeof(CandidateRecord)));
  }
  const auto bytes = communicator.all_to_all(std::as_bytes(std::span(outgoing)), bytes_to, bytes_from);
  std::vector<CandidateRecord> arrived(bytes.size() / sizeof(CandidateRecord));
  if (!bytes.empty()) std::memcpy(arrived.data(), bytes.data(), bytes.size());

  Candidates candidates;
  std::size_t next = 0;
  for (int rank = 0; rank < communicator.num_ranks(); ++rank) {
    const std::size_t count = bytes_from[rank] / sizeof(CandidateRecord);
    if (count > 0) ++candidates.num_peers;
    for (std::size_t k = 0; k < count; ++k, ++next) {
      candidates.positions.push_back(arrived[next].position);
      candidates.rank.push_back(rank);
      candidates.row.push_back(arrived[next].row);
    }
  }
  return candidates;
}

}  // namespace

PeerScheme parse_peer_scheme(std::string_view name)
{
  for (const auto& [known, scheme] : kSchemes) {
    if (known == name) return scheme;
  }
  fail(Reach::collective, "peers: expected multi-box, rank-box, key-range, all-gather or spatial-bin, found '{}'",
       name);
}

Candidates find_candidates(const CandidateQuery& query, std::span<const Vec3> positions, const Box& box,
                           Communicator& communicator)
{
  TESSERA_REQUIRE(std::isfinite(query.reach) && query.reach > 0, "the reach must be positive, got {} Å", query.reach);
  TESSERA_REQUIRE(std::isfinite(query.drift) && query.drift >= 0, "the drift must be >= 0, got {} Å", query.drift);
  const CandidateContext context{query, positions, box, wrap_positions(positions, box, query.reach), communicator};
  return exchange(select(context), positions, communicator);
}

}  // namespace tessera
