// SPDX-License-Identifier: MIT
#include "tessera/topology/topology_cache.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "hard_systems.hpp"
#include "tessera/base/error.hpp"
#include "tessera/comm/virtual.hpp"

namespace tessera {
namespace {

using testing::cube;

constexpr double kCutoff = 4;
constexpr double kSkin = 1;          // Å; half of it and the positions below are exact in binary
constexpr double kJustBelow = 1e-8;  // Å, ten times what the rule allows for rounding

/// A cache on one rank whose epoch began with two atoms in a cube of 16 Å.
struct SoloCache {
  explicit SoloCache(std::int64_t interval = 0, double skin = kSkin) : cache(kCutoff, skin, interval)
  {
    cache.remember(positions, box);
  }
  RebuildCause vote() const { return cache.vote(positions, box, RebuildCause::none, true, *comm); }

  std::unique_ptr<Communicator> comm = make_serial_communicator();
  std::vector<Vec3> positions{{1, 2, 3}, {8, 8, 8}};
  Box box = cube(16);
  TopologyCache cache;
};

TEST(TopologyCache, the_first_vote_builds)
{
  const auto comm = make_serial_communicator();
  const TopologyCache cache(kCutoff, kSkin, 0);
  EXPECT_EQ(cache.epoch(), 0);
  EXPECT_EQ(cache.vote(std::vector<Vec3>{{0, 0, 0}}, cube(9), RebuildCause::none, true, *comm), RebuildCause::first);
}

TEST(TopologyCache, atoms_at_rest_reuse_the_epoch)
{
  SoloCache solo;
  EXPECT_EQ(solo.vote(), RebuildCause::none);
  EXPECT_EQ(solo.cache.epoch(), 1);
}

TEST(TopologyCache, a_moved_atom_at_half_the_skin_forces_a_rebuild)
{
  SoloCache solo;
  solo.positions[1][2] += kSkin / 2;
  EXPECT_EQ(solo.vote(), RebuildCause::displacement);
}

TEST(TopologyCache, a_moved_atom_just_below_half_the_skin_does_not)
{
  SoloCache solo;
  solo.positions[1][2] += kSkin / 2 - kJustBelow;
  EXPECT_EQ(solo.vote(), RebuildCause::none);
}

TEST(TopologyCache, a_rebuild_starts_the_measure_anew)
{
  SoloCache solo;
  solo.positions[1][2] += 0.75;
  EXPECT_EQ(solo.vote(), RebuildCause::displacement);
  solo.cache.remember(solo.positions, solo.box);
  EXPECT_EQ(solo.cache.epoch(), 2);
  EXPECT_EQ(solo.vote(), RebuildCause::none);
}

TEST(TopologyCache, without_a_skin_every_step_rebuilds)
{
  SoloCache solo(0, 0.0);
  EXPECT_EQ(solo.vote(), RebuildCause::displacement);
}

TEST(TopologyCache, a_position_that_is_not_a_number_rebuilds_so_that_the_search_can_report_it)
{
  SoloCache solo;
  solo.positions[0][0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(solo.vote(), RebuildCause::displacement);
}

TEST(TopologyCache, the_interval_counts_steps_of_use)
{
  SoloCache solo(3);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(solo.vote(), RebuildCause::none) << "step " << step;
    solo.cache.tick();
  }
  EXPECT_EQ(solo.vote(), RebuildCause::interval);
  solo.cache.remember(solo.positions, solo.box);
  EXPECT_EQ(solo.vote(), RebuildCause::none);
}

TEST(TopologyCache, a_box_that_only_expands_or_moves_with_its_atoms_reuses_the_epoch)
{
  SoloCache solo;
  solo.box = Box({Vec3{32, 0, 0}, Vec3{0, 32, 0}, Vec3{0, 0, 32}}, {4, 0, -8}, testing::kPeriodic);
  for (Vec3& r : solo.positions) r = 2.0 * r + solo.box.origin();
  EXPECT_EQ(solo.vote(), RebuildCause::none);
}

TEST(TopologyCache, compression_eats_the_skin_even_if_no_atom_moves_within_the_cell)
{
  // Stretch 0.8 leaves 0.8 * (4 + 1) - 4 = 0 of the skin.
  SoloCache solo;
  const auto compress = [&](double factor) {
    solo.box = cube(16 * factor);
    for (std::size_t k = 0; k < 2; ++k) solo.positions[k] = factor * SoloCache().positions[k];
    return solo.vote();
  };
  EXPECT_EQ(compress(0.799), RebuildCause::displacement);
  EXPECT_EQ(compress(0.801), RebuildCause::none);
}

TEST(TopologyCache, a_face_that_follows_atoms_along_an_open_axis_is_no_deformation)
{
  SoloCache solo;
  const std::array<bool, 3> slab{true, true, false};
  solo.box = cube(16, slab);
  solo.cache.remember(solo.positions, solo.box);
  solo.box = Box({Vec3{16, 0, 0}, Vec3{0, 16, 0}, Vec3{0, 0, 5}}, {0, 0, 3.5}, slab);
  EXPECT_EQ(solo.vote(), RebuildCause::none);
}

TEST(TopologyCache, other_periodic_axes_force_a_rebuild)
{
  SoloCache solo;
  solo.box = cube(16, {true, true, false});
  EXPECT_EQ(solo.vote(), RebuildCause::displacement);
}

TEST(TopologyCache, settings_without_meaning_are_refused_collectively)
{
  for (const auto& [cutoff, skin, interval] :
       {std::tuple{0.0, 1.0, 0}, std::tuple{4.0, -0.1, 0}, std::tuple{4.0, 1.0, -1},
        std::tuple{4.0, std::numeric_limits<double>::quiet_NaN(), 0}}) {
    try {
      const TopologyCache cache(cutoff, skin, interval);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.reach(), Reach::collective);
    }
  }
}

/// Votes on four ranks, of which `special` passes something else; returns every rank's answer.
std::vector<RebuildCause> vote_with_one_special_rank(int special, const Vec3& move, RebuildCause cause)
{
  std::vector<RebuildCause> answers(4);
  run_virtual_ranks(4, [&](const std::shared_ptr<Communicator>& comm) {
    TopologyCache cache(kCutoff, kSkin, 0);
    std::vector<Vec3> positions(comm->rank(), Vec3{1, 1, 1});  // rank 0 has no atoms
    cache.remember(positions, cube(16));
    const bool is_special = comm->rank() == special;
    if (is_special) positions[0] = positions[0] + move;
    answers[comm->rank()] = cache.vote(positions, cube(16), is_special ? cause : RebuildCause::none, true, *comm);
  });
  return answers;
}

TEST(TopologyVote, one_atom_of_one_rank_decides_for_all)
{
  EXPECT_EQ(vote_with_one_special_rank(2, {0.5, 0, 0}, RebuildCause::none),
            std::vector<RebuildCause>(4, RebuildCause::displacement));
  EXPECT_EQ(vote_with_one_special_rank(2, {0.25, 0, 0}, RebuildCause::none),
            std::vector<RebuildCause>(4, RebuildCause::none));
}

TEST(TopologyVote, what_one_rank_alone_knows_decides_for_all)
{
  EXPECT_EQ(vote_with_one_special_rank(3, {0, 0, 0}, RebuildCause::migration),
            std::vector<RebuildCause>(4, RebuildCause::migration));
  EXPECT_EQ(vote_with_one_special_rank(1, {0, 0, 0}, RebuildCause::forced),
            std::vector<RebuildCause>(4, RebuildCause::forced));
}

/// The error of every rank when the ranks of `failed` pass ok = false, or drop an atom without saying so.
std::vector<std::string> errors_of_vote(const std::vector<int>& failed, bool drop_atom)
{
  std::vector<std::string> texts(4);
  run_virtual_ranks(4, [&](const std::shared_ptr<Communicator>& comm) {
    TopologyCache cache(kCutoff, kSkin, 0);
    std::vector<Vec3> positions(2, Vec3{1, 1, 1});
    cache.remember(positions, cube(16));
    const bool has_failed = std::find(failed.begin(), failed.end(), comm->rank()) != failed.end();
    if (has_failed && drop_atom) positions.pop_back();
    try {
      (void)cache.vote(positions, cube(16), RebuildCause::none, !has_failed || drop_atom, *comm);
      texts[comm->rank()] = "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.reach(), Reach::collective);
      texts[comm->rank()] = error.what();
    }
  });
  return texts;
}

TEST(TopologyVote, a_failed_rank_fails_the_vote_of_all_and_the_lowest_is_named)
{
  for (const std::string& text : errors_of_vote({3, 1}, false)) {
    EXPECT_EQ(text.find("rank 1 reported a failure"), 0U) << text;
  }
  for (const std::string& text : errors_of_vote({0}, false)) EXPECT_EQ(text.find("rank 0 reported"), 0U) << text;
}

TEST(TopologyVote, an_atom_that_vanished_unannounced_fails_the_vote_of_all)
{
  const auto texts = errors_of_vote({2}, true);
  EXPECT_EQ(texts[2], "rank 2 has 1 atoms, epoch 1 began with 2: declare the migration");
  EXPECT_EQ(texts[0].find("rank 2 reported a failure"), 0U) << texts[0];
}

}  // namespace
}  // namespace tessera
