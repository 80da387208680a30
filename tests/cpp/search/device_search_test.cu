// SPDX-License-Identifier: MIT
#include "tessera/search/device_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "devices.hpp"
#include "hard_systems.hpp"
#include "tessera/base/error.hpp"
#include "tessera/search/cell_search.hpp"

namespace tessera {
namespace {

using testing::cube;
using testing::HardSystem;

struct FoundEdges {
  explicit FoundEdges(Device device) : receiver(device), sender(device), shift(device), first_of_receiver(device) {}
  operator EdgeArrays() { return {receiver, sender, shift, first_of_receiver}; }

  DeviceArray<std::int32_t> receiver, sender;
  DeviceArray<Shift> shift;
  DeviceArray<std::int32_t> first_of_receiver;
};

std::int64_t num_atoms(const HardSystem& system) { return static_cast<std::int64_t>(system.positions.size()); }

std::int64_t search_on(DeviceSearch& search, StreamRef stream, const HardSystem& system, std::int64_t num_receivers,
                       FoundEdges& edges)
{
  DeviceArray<Vec3> positions(stream.device);
  positions.assign(system.positions, stream);
  const auto found = search.find(positions.data(), num_atoms(system), num_receivers, system.box, system.cutoff, edges);
  synchronize(stream);
  return found;
}

template <typename Value>
std::vector<std::int64_t> widened(const std::vector<Value>& values)
{
  return {values.begin(), values.end()};
}

/// The edges of cell_search(), and where those of each receiver begin.
void expect_edges_of_the_host(const HardSystem& system, std::int64_t num_receivers, std::int64_t num_edges,
                              const FoundEdges& edges, StreamRef stream)
{
  const NeighborList expected = cell_search(system.positions, num_receivers, system.box, system.cutoff);
  EXPECT_EQ(num_edges, expected.num_edges());
  EXPECT_EQ(widened(edges.receiver.to_host(stream)), expected.receiver);
  EXPECT_EQ(widened(edges.sender.to_host(stream)), expected.sender);
  EXPECT_EQ(edges.shift.to_host(stream), expected.shift);
  const auto first = edges.first_of_receiver.to_host(stream);
  ASSERT_EQ(first.size(), static_cast<std::size_t>(num_receivers + 1));
  for (std::int64_t i = 0; i <= num_receivers; ++i) {
    const auto begin = std::lower_bound(expected.receiver.begin(), expected.receiver.end(), i);
    EXPECT_EQ(first[i], begin - expected.receiver.begin()) << "receiver " << i;
  }
}

/// The hard systems, and those that are hard for keys of cells.
std::vector<HardSystem> systems()
{
  auto all = testing::hard_systems();
  all.push_back(testing::scattered("many_cells", 3000, cube(31), 3.0, 30));
  all.push_back(testing::scattered("an_open_box", 600, cube(18, {false, false, false}), 3.5, 31));
  HardSystem sparse = testing::scattered("more_cells_along_an_axis_than_a_key_tells", 400, cube(12), 3.0, 32);
  sparse.box = cube(2e7);
  all.push_back(std::move(sparse));
  HardSystem far = testing::droplet("droplet_beyond_the_last_cell_of_an_open_box", 2e6, {false, true, false});
  for (Vec3& r : far.positions) r = r + Vec3{-9e7, 0, 8e7};
  all.push_back(std::move(far));
  HardSystem flat{"flat_tilted_cell_with_many_images", {}, {}, 5.0};
  flat.box = Box({Vec3{0.9, 0, 0}, Vec3{0.4, 1.1, 0}, Vec3{2.0, -1.5, 0.8}}, {0, 1, 2}, testing::kPeriodic);
  flat.positions = testing::scatter_atoms(3, flat.box, 33);
  all.push_back(std::move(flat));
  return all;
}

TEST(DeviceSearch, finds_the_edges_of_the_host_in_the_same_order)
{
  for (const StreamRef stream : streams_to_test()) {
    DeviceSearch search(stream);  // one for all, so that each search finds what the last one has left
    FoundEdges edges(stream.device);
    for (const HardSystem& system : systems()) {
      for (const std::int64_t num_receivers : {num_atoms(system), num_atoms(system) / 3}) {
        SCOPED_TRACE(system.name + ", receivers: " + std::to_string(num_receivers));
        const auto num_edges = search_on(search, stream, system, num_receivers, edges);
        expect_edges_of_the_host(system, num_receivers, num_edges, edges, stream);
      }
    }
  }
}

TEST(DeviceSearch, repeats_itself_with_the_arrays_of_a_larger_search)
{
  const auto large = testing::scattered("large", 900, cube(20), 4.0, 40);
  const auto small = testing::scattered("small", 60, cube(8), 4.0, 41);
  for (const StreamRef stream : streams_to_test()) {
    DeviceSearch search(stream);
    FoundEdges edges(stream.device);
    for (const HardSystem* system : {&small, &large, &small}) {
      const auto num_edges = search_on(search, stream, *system, num_atoms(*system), edges);
      expect_edges_of_the_host(*system, num_atoms(*system), num_edges, edges, stream);
    }
  }
}

TEST(DeviceSearch, scattered_edges_are_those_of_the_host_by_scattered_sender)
{
  for (const StreamRef stream : streams_to_test()) {
    DeviceSearch search(stream, SenderOrder::scattered);
    FoundEdges edges(stream.device);
    for (const HardSystem& system : systems()) {
      SCOPED_TRACE(system.name);
      NeighborList expected = cell_search(system.positions, num_atoms(system), system.box, system.cutoff);
      std::vector<std::int64_t> order(expected.sender.size());
      std::iota(order.begin(), order.end(), 0);
      const auto key = [&](std::int64_t e) {
        return std::pair(expected.receiver[e], static_cast<std::uint32_t>(expected.sender[e]) * ScatteredRows::kFactor);
      };
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return key(a) < key(b); });
      std::vector<std::int64_t> sender;
      std::vector<Shift> shift;
      for (const std::int64_t e : order) {
        sender.push_back(expected.sender[e]);
        shift.push_back(expected.shift[e]);
      }
      search_on(search, stream, system, num_atoms(system), edges);
      EXPECT_EQ(widened(edges.receiver.to_host(stream)), expected.receiver);
      EXPECT_EQ(widened(edges.sender.to_host(stream)), sender);
      EXPECT_EQ(edges.shift.to_host(stream), shift);
    }
  }
}

std::string refusal(const std::function<void()>& work)
{
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(DeviceSearchInput, a_position_that_cannot_be_wrapped_is_refused_in_the_words_of_the_host)
{
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  for (const Vec3& bad : {Vec3{0, nan, 0}, Vec3{infinite, 0, 0}, Vec3{0, 0, -infinite}, Vec3{0, 1e11, 0}}) {
    HardSystem system = testing::scattered("bad_rows", 200, cube(9), 3.0, 50);
    system.positions[130] = bad;
    system.positions[170] = {nan, nan, nan};  // the first is named
    const std::string expected =
        refusal([&] { (void)cell_search(system.positions, num_atoms(system), system.box, system.cutoff); });
    EXPECT_NE(expected.find("row 130"), std::string::npos) << expected;
    for (const StreamRef stream : streams_to_test()) {
      DeviceSearch search(stream);
      FoundEdges edges(stream.device);
      EXPECT_EQ(refusal([&] { search_on(search, stream, system, num_atoms(system), edges); }), expected);
    }
  }
}

TEST(DeviceSearchInput, a_cutoff_or_receiver_count_without_meaning_is_refused)
{
  const HardSystem good{"two_atoms", {{0, 0, 0}, {1, 0, 0}}, cube(9), 2.0};
  for (const StreamRef stream : streams_to_test()) {
    DeviceSearch search(stream);
    FoundEdges edges(stream.device);
    for (const double cutoff : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
      HardSystem bad = good;
      bad.cutoff = cutoff;
      EXPECT_THROW(search_on(search, stream, bad, 2, edges), Error);
    }
    EXPECT_THROW(search_on(search, stream, good, 3, edges), Error);
    EXPECT_THROW(search_on(search, stream, good, -1, edges), Error);
  }
}

TEST(DeviceSearchInput, a_cell_of_which_too_many_images_lie_within_the_cutoff_is_refused)
{
  const HardSystem tiny{"tiny_cell", {{0, 0, 0}}, cube(0.001), 6.0};
  for (const StreamRef stream : streams_to_test()) {
    DeviceSearch search(stream);
    FoundEdges edges(stream.device);
    const std::string text = refusal([&] { search_on(search, stream, tiny, 1, edges); });
    EXPECT_NE(text.find("2^31 images of the cell within 6 Å"), std::string::npos) << text;
  }
}

TEST(DeviceSearchInput, edges_that_32_bits_cannot_number_are_refused)
{
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  EXPECT_NO_THROW(require_countable_edges(most - 1, 9.0));
  const std::string text = refusal([&] { require_countable_edges(most + 1, 9.0); });
  EXPECT_NE(text.find("within 9 Å of one rank's atoms, found 2147483648"), std::string::npos) << text;
  EXPECT_THROW(require_countable_edges(most, 9.0), Error);
}

}  // namespace
}  // namespace tessera
