// SPDX-License-Identifier: MIT
#include "tessera/engine/edge_kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "devices.hpp"
#include "tessera/search/edge_vector.hpp"
#include "topology/rank_topology.hpp"

namespace tessera {
namespace {

using testing::Edge;
using testing::EdgeSets;
using testing::HardSystem;
using testing::Layout;
using testing::RankTopology;
using Comm = std::shared_ptr<Communicator>;

constexpr double kSkin = 0.9;  // Å

/// Room beyond what is needed, and where halo rows stand.
struct Room {
  std::int64_t rows = 1, edges = 1, pairs = 0;
  std::int32_t slots_apart = 1;
};
constexpr Room kTight{}, kRoomy{7, 40, 33, 3};

std::vector<double> cutoffs_of(const HardSystem& system) { return {0.5 * system.cutoff, 0.8 * system.cutoff}; }

std::vector<Vec3> moved_by(const std::vector<Vec3>& positions, double distance, unsigned seed)
{
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Vec3> moved;
  for (const Vec3& r : positions) {
    const Vec3 direction{normal(random), normal(random), normal(random)};
    moved.push_back(r + (0.999 * distance / std::sqrt(dot(direction, direction))) * direction);
  }
  return moved;
}

HaloSlots spread(std::int64_t num_halo, const Room& room)
{
  HaloSlots slots = HaloSlots::identity(num_halo);
  for (auto& slot : slots.slot) slot *= room.slots_apart;
  slots.num_slots *= room.slots_apart;
  return slots;
}

/// The model's inputs of one list, back on the host.
struct Inputs {
  ListExtents extents;
  std::int64_t num_owned = 0, num_edges = 0;
  std::vector<Vec3> vectors;
  std::vector<std::int64_t> receiver, sender, receiver_range, order, sender_range;
  HaloSlots slots;
};

/// The lists of one rank on a device.
class RankLists {
 public:
  RankLists(const RankTopology& rank, const Box& box, const std::vector<Vec3>& extended, const Room& room,
            StreamRef stream)
      : stream_(stream),
        topology_(stream.device, rank.topology.lists.size()),
        input_(stream.device),
        scratch_(stream.device)
  {
    topology_.upload(rank.topology, stream);
    const std::int64_t num_owned = topology_.num_owned;
    const HaloSlots wide = spread(topology_.widest().plan->num_halo, room);
    std::vector<double> input(kCellDoubles + 3 * (num_owned + room.rows + std::max<std::int64_t>(2, wide.num_slots)));
    std::memcpy(input.data(), box.cell().data(), sizeof(Mat3));
    for (std::size_t k = 0; k < extended.size(); ++k) {
      const auto row = static_cast<std::int64_t>(k);
      const std::int64_t place = row < num_owned ? row : num_owned + room.rows + wide.slot[row - num_owned];
      std::memcpy(input.data() + kCellDoubles + 3 * place, &extended[k], sizeof(Vec3));
    }
    input_.assign(input, stream);
    for (DeviceList& list : topology_.lists) {
      arrays_.emplace_back(stream.device);
      slots_.push_back(spread(list.plan->num_halo, room));
      const std::vector<std::int32_t> elements(list.plan->num_halo, 1);
      arrays_.back().begin_epoch(list, num_owned, slots_.back(), wide, elements, 2, stream);
      arrays_.back().make_room(num_owned + room.rows, 2, list.num_edges + room.pairs);
      mark_edges(arrays_.back().view(list), input_.data(), stream, scratch_);
      const std::int64_t found = arrays_.back().status().to_host(stream)[0];
      arrays_.back().make_room(num_owned + room.rows, found + room.edges, list.num_edges + room.pairs);
      write_edges(arrays_.back().view(list), input_.data(), stream);
    }
    synchronize(stream);
  }

  [[nodiscard]] ListView view(std::size_t l) { return arrays_[l].view(topology_.lists[l]); }
  [[nodiscard]] std::vector<std::int64_t> status(std::size_t l) { return arrays_[l].status().to_host(stream_); }

  [[nodiscard]] Inputs inputs(std::size_t l)
  {
    const ListView list = view(l);
    const auto [rows, halo, edges, pairs] = list.extents;
    Inputs in{list.extents, topology_.num_owned, status(l)[0], {}, {}, {}, {}, {}, {}, slots_[l]};
    const auto fetch = [&](auto& to, const auto* from, std::int64_t count) {
      to.resize(count);
      copy_bytes(to.data(), from, count * sizeof(to[0]), stream_);
    };
    fetch(in.vectors, reinterpret_cast<const Vec3*>(list.edge_vector), edges);
    fetch(in.receiver, list.edge_receiver, edges);
    fetch(in.sender, list.edge_sender, edges);
    fetch(in.order, list.edge_order, edges);
    fetch(in.receiver_range, list.receiver_range, 2 * rows);
    fetch(in.sender_range, list.sender_range, 2 * (rows + halo));
    synchronize(stream_);
    return in;
  }

 private:
  StreamRef stream_;
  DeviceTopology topology_;
  DeviceArray<double> input_;
  DeviceArray<std::byte> scratch_;
  std::vector<ListArrays> arrays_;
  std::vector<HaloSlots> slots_;
};

/// Every edge, padding included, stands once in the range of its receiver and once in that of its sender.
void expect_ranges_to_hold_every_edge_once(const Inputs& in)
{
  const auto edges = in.extents.edges;
  std::vector<int> received(edges), sent(edges);
  for (std::int64_t row = 0; row < in.extents.rows; ++row) {
    for (auto e = in.receiver_range[2 * row]; e < in.receiver_range[2 * row + 1]; ++e) {
      ASSERT_EQ(in.receiver[e], row);
      ++received[e];
    }
  }
  for (std::int64_t row = 0; row < in.extents.rows + in.extents.halo; ++row) {
    std::int64_t previous = -1;
    for (auto q = in.sender_range[2 * row]; q < in.sender_range[2 * row + 1]; ++q) {
      const auto e = in.order[q];
      ASSERT_EQ(in.sender[e], row);
      ASSERT_GT(e, previous) << "edges of one sender ascend";
      previous = e;
      ++sent[e];
    }
  }
  EXPECT_EQ(received, std::vector<int>(edges, 1));
  EXPECT_EQ(sent, std::vector<int>(edges, 1));
}

/// The edges of all ranks by ids, from lists that were built at `then` with a skin.
EdgeSets edges_of(const HardSystem& then, const std::vector<Vec3>& now, double skin, const Layout& layout,
                  const Room& room, StreamRef stream)
{
  return testing::unite(layout.num_ranks, [&](const Comm& comm) {
    const RankTopology rank = testing::build_rank(then, layout, cutoffs_of(then), skin, comm);
    const auto held = testing::values_of(testing::held_ids(now.size(), *comm), now);
    const auto positions = testing::extend_by(rank.topology.widest().plan, rank.reshard.forward<Vec3>(held), comm);
    RankLists lists(rank, then.box, positions, room, stream);
    EdgeSets sets;
    for (std::size_t l = 0; l < rank.topology.lists.size(); ++l) {
      const TopologyList& list = rank.topology.lists[l];
      const auto ids = testing::extended_ids(rank, list, comm);
      const Inputs in = lists.inputs(l);
      expect_ranges_to_hold_every_edge_once(in);
      std::vector<std::int64_t> id_of(in.extents.rows + in.extents.halo, -1);
      std::vector<Vec3> at(id_of.size());
      for (std::int64_t row = 0; row < in.num_owned; ++row) {
        id_of[row] = ids[row];
        at[row] = positions[row];
      }
      for (std::size_t wide = 0; wide < list.halo_row.size(); ++wide) {
        const auto k = list.halo_row[wide];
        if (k < 0) continue;
        id_of[in.extents.rows + in.slots.slot[k]] = ids[in.num_owned + k];
        at[in.extents.rows + in.slots.slot[k]] = positions[in.num_owned + wide];
      }
      std::vector<Edge> edges;
      for (std::int64_t e = 0; e < in.num_edges; ++e) {
        // An edge does not carry its shift; its vector tells it.
        const Vec3 offset = at[in.receiver[e]] - at[in.sender[e]] - in.vectors[e];
        const Vec3 turns = Box(then.box.cell(), Vec3{}, then.box.periodic()).to_fractional(offset);
        Shift shift{};
        for (int k = 0; k < 3; ++k) shift[k] = static_cast<std::int32_t>(std::lround(turns[k]));
        edges.emplace_back(id_of[in.receiver[e]], id_of[in.sender[e]], shift);
      }
      for (std::int64_t e = in.num_edges; e < in.extents.edges; ++e) {
        EXPECT_GE(in.vectors[e][0], 100 * list.cutoff) << "no padding edge is seen";
        EXPECT_GE(in.receiver[e], in.num_owned) << "no real atom has a padding edge";
      }
      sets.push_back(std::move(edges));
    }
    return sets;
  });
}

class EdgesOf : public ::testing::TestWithParam<HardSystem> {};

TEST_P(EdgesOf, a_list_kept_within_its_skin_are_those_of_a_fresh_search)
{
  HardSystem fresh = GetParam();
  fresh.positions = moved_by(fresh.positions, kSkin / 2, 1);
  for (const StreamRef stream : streams_to_test()) {
    for (const Room& room : {kTight, kRoomy}) {
      for (const int num_ranks : {1, 3}) {
        const EdgeSets kept = edges_of(GetParam(), fresh.positions, kSkin, {num_ranks}, room, stream);
        const EdgeSets expected = edges_of(fresh, fresh.positions, 0, {num_ranks}, kTight, {});
        ASSERT_EQ(kept.size(), expected.size());
        for (std::size_t l = 0; l < expected.size(); ++l) {
          EXPECT_EQ(kept[l], expected[l]) << "list " << l << ": " << testing::first_difference(kept[l], expected[l]);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HardSystems, EdgesOf, ::testing::ValuesIn(testing::hard_systems()),
                         [](const auto& info) { return info.param.name; });

TEST(Edges, of_a_list_kept_beyond_its_skin_are_too_few)
{
  const HardSystem system = testing::scattered("liquid", 900, testing::cube(21), 5.0, 3);
  HardSystem fresh = system;
  fresh.positions = moved_by(system.positions, 2 * kSkin, 1);
  const EdgeSets kept = edges_of(system, fresh.positions, kSkin, {3}, kTight, {});
  EXPECT_LT(kept[1].size(), edges_of(fresh, fresh.positions, 0, {3}, kTight, {})[1].size());
}

TEST(Edges, beyond_the_cutoff_are_left_out_and_at_it_kept)
{
  const HardSystem system{"three_atoms", {{1, 1, 1}, {3.5, 1, 1}, {1, 1, 4}}, testing::cube(20), 5.0};
  for (const StreamRef stream : streams_to_test()) {
    const EdgeSets found = edges_of(system, system.positions, kSkin, {1}, kRoomy, stream);
    EXPECT_EQ(found[0], (std::vector<Edge>{{1, 2, Shift{}}, {2, 1, Shift{}}}));  // 2.5 Å is the first cutoff
    EXPECT_EQ(found[1].size(), 6U);                                              // all three pairs are within 4 Å
  }
}

/// One rank's lists of a system at its own positions.
RankTopology one_rank(const HardSystem& system)
{
  return testing::build_rank(system, {1}, cutoffs_of(system), kSkin, make_serial_communicator());
}

TEST(Edges, of_coincident_atoms_are_reported)
{
  const HardSystem system{"coincident", {{1, 1, 1}, {1, 1, 1.00005}}, testing::cube(10), 5.0};
  for (const StreamRef stream : streams_to_test()) {
    const RankTopology rank = one_rank(system);
    RankLists lists(rank, system.box, rank.positions, kTight, stream);
    EXPECT_GT(lists.status(0)[1], 0);
  }
}

TEST(Edges, that_find_no_room_are_counted_and_write_nothing_beyond_it)
{
  const HardSystem system = testing::scattered("liquid", 300, testing::cube(15), 5.0, 3);
  for (const StreamRef stream : streams_to_test()) {
    const RankTopology rank = one_rank(system);
    RankLists lists(rank, system.box, rank.positions, {3, -25, 0, 1}, stream);
    const Inputs in = lists.inputs(1);
    EXPECT_EQ(in.num_edges, in.extents.edges + 25);
    for (std::int64_t e = 0; e < in.extents.edges; ++e) {
      ASSERT_TRUE(in.order[e] >= 0 && in.order[e] < in.extents.edges);
    }
    for (const auto end : in.receiver_range) ASSERT_LE(end, in.extents.edges);
    for (const auto end : in.sender_range) ASSERT_LE(end, in.extents.edges);
  }
}

/// A pair energy sum_e exp(-|v|) / 2 has the edge gradient -v/|v| exp(-|v|) / 2.
Vec3 gradient_of(const Vec3& v)
{
  const double d = std::sqrt(dot(v, v));
  return (-0.5 * std::exp(-d) / d) * v;
}

TEST(Forces, and_virials_are_sums_over_edges_whatever_the_room)
{
  const HardSystem system = testing::scattered("liquid", 300, testing::cube(11), 5.0, 3);
  std::vector<double> expected;
  for (const StreamRef stream : streams_to_test()) {
    for (const Room& room : {kTight, kRoomy}) {
      const RankTopology rank = one_rank(system);
      RankLists lists(rank, system.box, rank.positions, room, stream);
      const std::int64_t rows = lists.view(0).extents.rows, halo = lists.view(1).extents.halo;
      DeviceArray<double> forces(stream.device), totals(stream.device), sums(stream.device), partial(stream.device),
          virials(stream.device);
      const auto cleared = [&](DeviceArray<double>& array, std::int64_t count) {
        clear_bytes(array.resize(count), count * sizeof(double), stream);
        return array.data();
      };
      const ForceSums out{cleared(forces, 3 * (rows + halo)), cleared(totals, kTotals * rows)};
      cleared(virials, 9 * (rows + halo));
      std::vector<double> by_hand(3 * rank.positions.size() + 9);
      for (std::size_t l = 0; l < 2; ++l) {
        const Inputs in = lists.inputs(l);
        std::vector<Vec3> gradient;
        for (const Vec3& v : in.vectors) gradient.push_back(gradient_of(v));
        for (std::int64_t e = 0; e < in.num_edges; ++e) {
          for (int a = 0; a < 3; ++a) {
            by_hand[3 * in.receiver[e] + a] -= gradient[e][a];
            by_hand[3 * in.sender[e] + a] += gradient[e][a];
            for (int b = 0; b < 3; ++b)
              by_hand[3 * rank.positions.size() + 3 * a + b] -= in.vectors[e][a] * gradient[e][b];
          }
        }
        DeviceArray<Vec3> on_device(stream.device);
        on_device.assign(gradient, stream);
        const auto* g = reinterpret_cast<const double*>(on_device.data());
        add_forces(lists.view(l), g, out, stream);
        add_atom_virials(lists.view(l), g, virials.data(), stream);
        synchronize(stream);
      }
      sum_totals(totals.data(), rows, sums.resize(kTotals), partial, stream);
      std::vector<double> found = forces.to_host(stream);
      found.resize(3 * rank.positions.size());
      const auto virial = sums.to_host(stream);
      found.insert(found.end(), virial.begin(), virial.begin() + 9);
      for (std::size_t k = 0; k < found.size(); ++k) EXPECT_NEAR(found[k], by_hand[k], 1e-11);  // another order
      if (expected.empty()) expected = found;
      EXPECT_EQ(found, expected) << "to the last bit on every device and with any room";
      const auto of_atoms = virials.to_host(stream);
      for (int c = 0; c < 9; ++c) {
        double sum = 0;
        for (std::size_t k = 0; k < rank.positions.size(); ++k) sum += of_atoms[9 * k + c];
        EXPECT_NEAR(sum, virial[c], 1e-11);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
