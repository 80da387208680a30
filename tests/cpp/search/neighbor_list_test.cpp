// SPDX-License-Identifier: MIT
#include "tessera/search/neighbor_list.hpp"

#include <gtest/gtest.h>

#include "hard_systems.hpp"
#include "tessera/base/error.hpp"
#include "tessera/search/cell_search.hpp"

namespace tessera {
namespace {

using Rows = std::vector<std::int64_t>;

TEST(IndexEdges, ranges_and_order_of_a_small_list_are_as_written_by_hand)
{
  const Rows receiver{0, 0, 2, 2, 2};
  const Rows sender{3, 1, 0, 3, 3};
  const EdgeIndex index = index_edges(receiver, sender, 3, 5);
  EXPECT_EQ(index.receiver_range, (Rows{0, 2, 2, 2, 2, 5}));
  EXPECT_EQ(index.sender_order, (Rows{2, 1, 0, 3, 4}));
  EXPECT_EQ(index.sender_range, (Rows{0, 1, 1, 2, 2, 2, 2, 5, 5, 5}));
}

TEST(IndexEdges, a_list_without_edges_or_rows_has_empty_ranges)
{
  EXPECT_EQ(index_edges({}, {}, 2, 3).receiver_range, (Rows{0, 0, 0, 0}));
  EXPECT_EQ(index_edges({}, {}, 2, 3).sender_range, (Rows{0, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(index_edges({}, {}, 0, 0).sender_range.empty());
}

TEST(IndexEdges, every_edge_is_found_once_from_either_end)
{
  for (const auto& system : testing::hard_systems()) {
    SCOPED_TRACE(system.name);
    const auto num_atoms = static_cast<std::int64_t>(system.positions.size());
    const auto list = cell_search(system.positions, num_atoms, system.box, system.cutoff);
    const EdgeIndex index = index_edges(list.receiver, list.sender, num_atoms, num_atoms);
    std::vector<int> seen_from_receiver(list.receiver.size()), seen_from_sender(list.receiver.size());
    for (std::int64_t row = 0; row < num_atoms; ++row) {
      for (auto e = index.receiver_range[2 * row]; e < index.receiver_range[2 * row + 1]; ++e) {
        EXPECT_EQ(list.receiver[e], row);
        ++seen_from_receiver[e];
      }
      for (auto k = index.sender_range[2 * row]; k < index.sender_range[2 * row + 1]; ++k) {
        const auto e = index.sender_order[k];
        EXPECT_EQ(list.sender[e], row);
        EXPECT_TRUE(k == index.sender_range[2 * row] || index.sender_order[k - 1] < e) << "edges of a sender ascend";
        ++seen_from_sender[e];
      }
    }
    EXPECT_EQ(seen_from_receiver, std::vector<int>(list.receiver.size(), 1));
    EXPECT_EQ(seen_from_sender, std::vector<int>(list.receiver.size(), 1));
  }
}

TEST(IndexEdges, edges_out_of_order_or_out_of_range_are_refused)
{
  EXPECT_THROW((void)index_edges({1, 0}, {0, 0}, 2, 2), Error);
  EXPECT_THROW((void)index_edges({0, 2}, {0, 0}, 2, 2), Error);
  EXPECT_THROW((void)index_edges({0, 1}, {0, 2}, 2, 2), Error);
  EXPECT_THROW((void)index_edges({0, 1}, {-1, 0}, 2, 2), Error);
  EXPECT_THROW((void)index_edges({0, 1}, {0}, 2, 2), Error);
}

}  // namespace
}  // namespace tessera
