// SPDX-License-Identifier: MIT
// A list that the cache lets live never misses a pair: ramps of the cell with moving atoms, against brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

#include "hard_systems.hpp"
#include "tessera/search/cell_search.hpp"
#include "tessera/topology/topology_cache.hpp"

namespace tessera {
namespace {

constexpr double kCutoff = 3.0;
constexpr double kSkin = 1.0;
constexpr int kSteps = 60;
constexpr double kJitter = 0.06;  // Å a step and axis

using Edge = std::tuple<std::int64_t, std::int64_t, Shift>;

std::set<Edge> edges_of(const NeighborList& list)
{
  std::set<Edge> edges;
  for (std::int64_t e = 0; e < list.num_edges(); ++e) edges.emplace(list.receiver[e], list.sender[e], list.shift[e]);
  return edges;
}

struct Ramp {
  std::string name;
  std::function<Mat3(double)> cell_at;  // of the progress 0 .. 1
};

Mat3 scaled(double x, double y, double z) { return {Vec3{12 * x, 0, 0}, Vec3{0, 12 * y, 0}, Vec3{0, 0, 12 * z}}; }

std::vector<Ramp> ramps()
{
  return {
      {"compression", [](double t) { return scaled(1 - 0.4 * t, 1 - 0.4 * t, 1 - 0.4 * t); }},
      {"compression_of_one_axis", [](double t) { return scaled(1, 1, 1 - 0.6 * t); }},
      {"expansion", [](double t) { return scaled(1 + 0.4 * t, 1 + 0.4 * t, 1 + 0.4 * t); }},
      {"shear", [](double t) { return Mat3{Vec3{12, 0, 0}, Vec3{9 * t, 12, 0}, Vec3{-5 * t, 7 * t, 12}}; }},
      {"expansion_of_one_axis_with_compression_of_another", [](double t) { return scaled(1 + t, 1 - 0.5 * t, 1); }},
  };
}

/// Runs a ramp; returns the number of rebuilds. With `test_list`, checks each step's list against brute force.
int run_ramp(const Ramp& ramp, bool test_list)
{
  const auto comm = make_serial_communicator();
  Box box(ramp.cell_at(0), {1, -2, 3}, testing::kPeriodic);
  auto positions = testing::scatter_atoms(60, box, 4);
  const auto count = static_cast<std::int64_t>(positions.size());
  TopologyCache cache(kCutoff, kSkin, 0);
  std::set<Edge> known;
  int num_rebuilds = 0;
  std::mt19937_64 random(8);
  std::uniform_real_distribution<double> jitter(-kJitter, kJitter);
  for (int step = 0; step <= kSteps; ++step) {
    const Box next(ramp.cell_at(static_cast<double>(step) / kSteps), {1, -2, 3}, testing::kPeriodic);
    for (Vec3& r : positions) r = next.to_cartesian(box.to_fractional(r)) + Vec3{jitter(random), jitter(random), 0};
    box = next;
    if (cache.vote(positions, box, RebuildCause::none, true, *comm) != RebuildCause::none) {
      known = edges_of(cell_search(positions, count, box, kCutoff + kSkin));
      cache.remember(positions, box);
      ++num_rebuilds;
    }
    cache.tick();
    if (!test_list) continue;
    for (const Edge& edge : edges_of(brute_force_search(positions, count, box, kCutoff))) {
      EXPECT_TRUE(known.contains(edge)) << "step " << step << " misses " << std::get<0>(edge) << " <- "
                                        << std::get<1>(edge);
    }
  }
  return num_rebuilds;
}

TEST(SkinSafety, no_pair_is_missed_while_the_cell_deforms_and_atoms_move)
{
  for (const Ramp& ramp : ramps()) {
    SCOPED_TRACE(ramp.name);
    run_ramp(ramp, true);
  }
}

TEST(SkinSafety, the_epoch_still_lives_for_several_steps)
{
  for (const Ramp& ramp : ramps()) {
    const int num_rebuilds = run_ramp(ramp, false);
    EXPECT_GE(num_rebuilds, 2) << ramp.name;
    EXPECT_LE(num_rebuilds, kSteps / 3) << ramp.name;
  }
}

// The worst case: two atoms just outside the list approach head-on while the cell shrinks along their line.
TEST(SkinSafety, the_worst_pair_is_never_within_the_cutoff_unseen)
{
  const auto comm = make_serial_communicator();
  const double gap = std::nextafter(kCutoff + kSkin, 100.0);
  const std::vector<Vec3> start{{5, 5, 5}, {5 + gap, 5, 5}};
  const Box box = testing::cube(30);
  TopologyCache cache(kCutoff, kSkin, 0);
  cache.remember(start, box);
  int num_reused = 0;
  for (double stretch = 1; stretch > 0.7; stretch -= 0.01) {
    for (double move = 0; move < 0.6; move += 0.01) {
      const Box now({Vec3{30 * stretch, 0, 0}, Vec3{0, 30, 0}, Vec3{0, 0, 30}}, {0, 0, 0}, testing::kPeriodic);
      std::vector<Vec3> positions = start;
      for (Vec3& r : positions) r[0] *= stretch;
      positions[0][0] += move;
      positions[1][0] -= move;
      if (cache.vote(positions, now, RebuildCause::none, true, *comm) != RebuildCause::none) continue;
      ++num_reused;
      EXPECT_GT(positions[1][0] - positions[0][0], kCutoff) << "stretch " << stretch << ", move " << move;
    }
  }
  EXPECT_GT(num_reused, 500) << "the rule is far stricter than it needs to be";
}

}  // namespace
}  // namespace tessera
