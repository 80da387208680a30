// SPDX-License-Identifier: MIT
#include "tessera/search/chunked_search.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>

#include "tessera/base/error.hpp"
#include "tessera/search/candidate_selection.hpp"
#include "tessera/search/wrapped_positions.hpp"

namespace tessera {
namespace {

using Rows = std::vector<std::int64_t>;

/// Divides receivers until they fit, taking the senders along that are near them.
class Bisection {
 public:
  Bisection(std::span<const Vec3> positions, const Box& box, double cutoff, std::int64_t max_receivers)
      : box_(box), wrapped_(wrap_positions(positions, box, cutoff)), max_receivers_(max_receivers)
  {
    margin_ = fraction_margin(cutoff + wrapped_.rounding, box);
  }

  void divide(Rows receivers, const Rows& senders, std::vector<QueryChunk>& chunks) const
  {
    if (receivers.empty()) return;
    const FractionBox bounds = bounds_of(receivers);
    Rows near;
    std::copy_if(senders.begin(), senders.end(), std::back_inserter(near), [&](std::int64_t row) {
      return are_near({wrapped_.fractions[row], wrapped_.fractions[row]}, bounds, margin_, box_.periodic());
    });
    if (static_cast<std::int64_t>(receivers.size()) <= max_receivers_) {
      std::sort(receivers.begin(), receivers.end());
      Rows others;
      std::set_difference(near.begin(), near.end(), receivers.begin(), receivers.end(), std::back_inserter(others));
      chunks.push_back({std::move(receivers), std::move(others)});
      return;
    }
    const int axis = longest_side(bounds);
    const auto middle = receivers.begin() + static_cast<std::ptrdiff_t>(receivers.size() / 2);
    std::nth_element(receivers.begin(), middle, receivers.end(), [&](std::int64_t a, std::int64_t b) {
      return std::tuple(wrapped_.fractions[a][axis], a) < std::tuple(wrapped_.fractions[b][axis], b);
    });
    divide(Rows(receivers.begin(), middle), near, chunks);
    divide(Rows(middle, receivers.end()), near, chunks);
  }

 private:
  [[nodiscard]] FractionBox bounds_of(const Rows& rows) const
  {
    FractionBox bounds{wrapped_.fractions[rows[0]], wrapped_.fractions[rows[0]]};
    for (const auto row : rows) {
      for (int k = 0; k < 3; ++k) {
        bounds.low[k] = std::min(bounds.low[k], wrapped_.fractions[row][k]);
        bounds.high[k] = std::max(bounds.high[k], wrapped_.fractions[row][k]);
      }
    }
    return bounds;
  }

  [[nodiscard]] int longest_side(const FractionBox& bounds) const
  {
    Vec3 side{};
    for (int k = 0; k < 3; ++k) side[k] = (bounds.high[k] - bounds.low[k]) * box_.height(k);
    return static_cast<int>(std::max_element(side.begin(), side.end()) - side.begin());
  }

  const Box& box_;
  WrappedPositions wrapped_;
  std::int64_t max_receivers_;
  Vec3 margin_{};
};

struct Edge {
  std::int64_t receiver = 0, sender = 0;
  Shift shift{};
  bool operator<(const Edge& other) const
  {
    return std::tie(receiver, sender, shift) < std::tie(other.receiver, other.sender, other.shift);
  }
};

}  // namespace

std::vector<QueryChunk> bisect_queries(std::span<const Vec3> positions, std::int64_t num_receivers, const Box& box,
                                       double cutoff, std::int64_t max_receivers)
{
  TESSERA_REQUIRE(max_receivers >= 1, "a chunk must hold at least 1 receiver, got {}", max_receivers);
  TESSERA_REQUIRE(num_receivers >= 0 && num_receivers <= static_cast<std::int64_t>(positions.size()),
                  "{} receivers among {} positions", num_receivers, positions.size());
  Rows receivers(num_receivers), senders(positions.size());
  std::iota(receivers.begin(), receivers.end(), 0);
  std::iota(senders.begin(), senders.end(), 0);
  std::vector<QueryChunk> chunks;
  Bisection(positions, box, cutoff, max_receivers).divide(std::move(receivers), senders, chunks);
  return chunks;
}

NeighborList chunked_search(std::span<const Vec3> positions, std::int64_t num_receivers, const Box& box, double cutoff,
                            std::int64_t max_receivers, const PairSearch& search)
{
  std::vector<Edge> edges;
  for (const QueryChunk& chunk : bisect_queries(positions, num_receivers, box, cutoff, max_receivers)) {
    Rows row_of = chunk.receivers;
    row_of.insert(row_of.end(), chunk.others.begin(), chunk.others.end());
    std::vector<Vec3> part;
    for (const auto row : row_of) part.push_back(positions[row]);
    const auto found = search(part, static_cast<std::int64_t>(chunk.receivers.size()), box, cutoff);
    for (std::int64_t e = 0; e < found.num_edges(); ++e) {
      edges.push_back({row_of[found.receiver[e]], row_of[found.sender[e]], found.shift[e]});
    }
  }
  std::sort(edges.begin(), edges.end());
  NeighborList list;
  list.cutoff = cutoff;
  list.num_receivers = num_receivers;
  for (const Edge& edge : edges) {
    list.receiver.push_back(edge.receiver);
    list.sender.push_back(edge.sender);
    list.shift.push_back(edge.shift);
  }
  return list;
}

}  // namespace tessera
