// SPDX-License-Identifier: MIT
#include "tessera/search/pair_search.hpp"

#include <gtest/gtest.h>

#include "hard_systems.hpp"
#include "tessera/base/error.hpp"
#include "tessera/search/cell_search.hpp"

namespace tessera {
namespace {

bool has_faiss()
{
#ifdef TESSERA_FAISS
  return true;
#else
  return false;
#endif
}

std::string error_of(const char* name)
{
  try {
    (void)make_pair_search(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.reach(), Reach::collective);
    return error.what();
  }
  return "no error";
}

TEST(PairSearch, of_an_unknown_name_is_refused_with_the_choices)
{
  EXPECT_EQ(error_of("cells"), "no error");
  EXPECT_EQ(error_of("kdtree"), "search: expected cells or faiss, found 'kdtree'");
}

TEST(PairSearch, of_faiss_in_a_build_without_it_says_how_to_get_it)
{
  if (has_faiss()) GTEST_SKIP() << "this build has FAISS";
  EXPECT_NE(error_of("faiss").find("-DTESSERA_FAISS=ON"), std::string::npos);
}

void expect_the_edges_of_cells(const testing::HardSystem& system)
{
  SCOPED_TRACE(system.name);
  const auto count = static_cast<std::int64_t>(system.positions.size());
  for (const auto num_receivers : {count, count / 2}) {
    const auto expected = cell_search(system.positions, num_receivers, system.box, system.cutoff);
    const auto found = make_pair_search("faiss")(system.positions, num_receivers, system.box, system.cutoff);
    EXPECT_EQ(found.receiver, expected.receiver);
    EXPECT_EQ(found.sender, expected.sender);
    EXPECT_EQ(found.shift, expected.shift);
    EXPECT_EQ(found.num_receivers, num_receivers);
  }
}

TEST(PairSearch, of_faiss_finds_the_edges_of_cells)
{
  if (!has_faiss()) GTEST_SKIP() << "this build has no FAISS (-DTESSERA_FAISS=ON)";
  for (const auto& system : testing::hard_systems()) expect_the_edges_of_cells(system);
}

TEST(PairSearch, of_faiss_has_no_limit_of_2048_neighbors)
{
  if (!has_faiss()) GTEST_SKIP() << "this build has no FAISS (-DTESSERA_FAISS=ON)";
  const auto dense = testing::scattered("dense", 3000, testing::cube(20), 19, 5);
  const auto expected = cell_search(dense.positions, 1, dense.box, dense.cutoff);
  const auto found = make_pair_search("faiss")(dense.positions, 1, dense.box, dense.cutoff);
  EXPECT_GT(found.num_edges(), 2 * 2048);
  EXPECT_EQ(found.sender, expected.sender);
  EXPECT_EQ(found.shift, expected.shift);
}

}  // namespace
}  // namespace tessera
