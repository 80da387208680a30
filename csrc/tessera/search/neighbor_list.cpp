// SPDX-License-Identifier: MIT
#include "tessera/search/neighbor_list.hpp"

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

/// Turns the counts in [2 * row + 1] into [first, last) pairs.
void accumulate_ranges(std::vector<std::int64_t>& range)
{
  std::int64_t next = 0;
  for (std::size_t k = 0; k < range.size(); k += 2) {
    range[k] = next;
    next += range[k + 1];
    range[k + 1] = next;
  }
}

}  // namespace

EdgeIndex index_edges(const std::vector<std::int64_t>& receiver, const std::vector<std::int64_t>& sender,
                      std::int64_t num_receivers, std::int64_t num_rows)
{
  TESSERA_REQUIRE(receiver.size() == sender.size(), "{} receivers for {} senders: an edge has one of each",
                  receiver.size(), sender.size());
  EdgeIndex index;
  index.receiver_range.assign(2 * static_cast<std::size_t>(num_receivers), 0);
  index.sender_range.assign(2 * static_cast<std::size_t>(num_rows), 0);
  index.sender_order.resize(sender.size());
  for (std::size_t e = 0; e < receiver.size(); ++e) {
    const auto i = receiver[e];
    const auto j = sender[e];
    TESSERA_REQUIRE(i >= 0 && i < num_receivers, "edge {} has receiver {}, expected 0 .. {}", e, i, num_receivers - 1);
    TESSERA_REQUIRE(j >= 0 && j < num_rows, "edge {} has sender {}, expected 0 .. {}", e, j, num_rows - 1);
    TESSERA_REQUIRE(e == 0 || receiver[e - 1] <= i, "edges must be sorted by receiver, edge {} is not", e);
    ++index.receiver_range[2 * i + 1];
    ++index.sender_range[2 * j + 1];
  }
  accumulate_ranges(index.receiver_range);
  accumulate_ranges(index.sender_range);

  // A counting sort keeps the edge order within a sender. The first of each pair serves as its cursor meanwhile.
  for (std::size_t e = 0; e < sender.size(); ++e) {
    index.sender_order[index.sender_range[2 * sender[e]]++] = static_cast<std::int64_t>(e);
  }
  for (std::int64_t j = num_rows - 1; j >= 0; --j) {
    index.sender_range[2 * j] = j == 0 ? 0 : index.sender_range[2 * j - 1];
  }
  return index;
}

}  // namespace tessera
