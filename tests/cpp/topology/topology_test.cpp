// SPDX-License-Identifier: MIT
#include "tessera/topology/topology.hpp"

#include <gtest/gtest.h>

#include "hard_systems.hpp"
#include "tessera/base/error.hpp"
#include "tessera/search/cell_search.hpp"

namespace tessera {
namespace {

void expect_same_edges(const NeighborList& found, const NeighborList& expected)
{
  EXPECT_EQ(found.receiver, expected.receiver);
  EXPECT_EQ(found.sender, expected.sender);
  EXPECT_EQ(found.shift, expected.shift);
  EXPECT_EQ(found.cutoff, expected.cutoff);
  EXPECT_EQ(found.num_receivers, expected.num_receivers);
}

TEST(Topology, every_list_is_the_search_at_its_own_cutoff_and_skin)
{
  for (const auto& system : testing::hard_systems()) {
    SCOPED_TRACE(system.name);
    const auto count = static_cast<std::int64_t>(system.positions.size());
    const std::vector<double> cutoffs{0.6 * system.cutoff, 0.8 * system.cutoff};
    const double skin = 0.2 * system.cutoff;
    const auto comm = make_serial_communicator();
    const Topology topology = build_topology(system.positions, {}, system.box, cutoffs, skin, 4, cell_search, *comm);
    ASSERT_EQ(topology.lists.size(), 2U);
    EXPECT_EQ(topology.epoch, 4);
    EXPECT_EQ(topology.num_owned, count);
    for (std::size_t l = 0; l < 2; ++l) {
      EXPECT_EQ(topology.lists[l].cutoff, cutoffs[l]);
      expect_same_edges(topology.lists[l].pairs, cell_search(system.positions, count, system.box, cutoffs[l] + skin));
      EXPECT_EQ(topology.lists[l].plan->num_halo, 0);
      EXPECT_EQ(topology.lists[l].plan->num_owned, count);
    }
  }
}

TEST(Topology, one_without_cutoffs_is_refused)
{
  const auto comm = make_serial_communicator();
  EXPECT_THROW((void)build_topology({}, {}, testing::cube(9), {}, 1.0, 1, cell_search, *comm), Error);
}

}  // namespace
}  // namespace tessera
