// SPDX-License-Identifier: MIT
#include "tessera/search/chunked_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "hard_systems.hpp"
#include "tessera/base/error.hpp"
#include "tessera/search/cell_search.hpp"

namespace tessera {
namespace {

using testing::HardSystem;

class ChunkedSearch : public ::testing::TestWithParam<HardSystem> {};

TEST_P(ChunkedSearch, finds_the_edges_of_one_search_whatever_the_size_of_the_chunks)
{
  const auto& [name, positions, box, cutoff] = GetParam();
  const auto num_atoms = static_cast<std::int64_t>(positions.size());
  for (const auto num_receivers : {num_atoms, num_atoms / 2}) {
    const auto expected = cell_search(positions, num_receivers, box, cutoff);
    for (const std::int64_t size : {1, 7, 50, 100000}) {
      SCOPED_TRACE(std::to_string(num_receivers) + " receivers in chunks of " + std::to_string(size));
      const auto found = chunked_search(positions, num_receivers, box, cutoff, size, cell_search);
      EXPECT_EQ(found.receiver, expected.receiver);
      EXPECT_EQ(found.sender, expected.sender);
      EXPECT_EQ(found.shift, expected.shift);
      EXPECT_EQ(found.num_receivers, num_receivers);
      EXPECT_EQ(found.cutoff, cutoff);
    }
  }
}

TEST_P(ChunkedSearch, every_receiver_is_in_one_chunk_of_the_size_asked_for)
{
  const auto& [name, positions, box, cutoff] = GetParam();
  const auto num_atoms = static_cast<std::int64_t>(positions.size());
  for (const std::int64_t size : {1, 13}) {
    std::vector<int> seen(positions.size(), 0);
    for (const QueryChunk& chunk : bisect_queries(positions, num_atoms, box, cutoff, size)) {
      EXPECT_LE(static_cast<std::int64_t>(chunk.receivers.size()), size);
      EXPECT_FALSE(chunk.receivers.empty());
      for (const auto row : chunk.receivers) {
        ++seen[row];
        EXPECT_FALSE(std::binary_search(chunk.others.begin(), chunk.others.end(), row));
      }
    }
    EXPECT_EQ(seen, std::vector<int>(positions.size(), 1));
  }
}

INSTANTIATE_TEST_SUITE_P(HardSystems, ChunkedSearch, ::testing::ValuesIn(testing::hard_systems()),
                         [](const auto& info) { return info.param.name; });

TEST(BisectQueries, a_chunk_sees_a_small_part_of_a_large_system)
{
  const auto liquid = testing::scattered("liquid", 8000, testing::cube(43), 4.0, 3);
  const auto chunks = bisect_queries(liquid.positions, 8000, liquid.box, liquid.cutoff, 125);
  EXPECT_EQ(chunks.size(), 64U);
  for (const QueryChunk& chunk : chunks) {
    // Cubes of 10.75 Å with 4 Å around: (18.75 / 43)^3 of the atoms, and some for fluctuations.
    EXPECT_LT(chunk.receivers.size() + chunk.others.size(), 0.11 * 8000);
  }
}

TEST(BisectQueries, counts_without_meaning_are_refused)
{
  const std::vector<Vec3> positions{{1, 1, 1}};
  EXPECT_THROW((void)bisect_queries(positions, 1, testing::cube(9), 3.0, 0), Error);
  EXPECT_THROW((void)bisect_queries(positions, 2, testing::cube(9), 3.0, 5), Error);
}

}  // namespace
}  // namespace tessera
