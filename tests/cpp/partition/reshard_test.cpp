// SPDX-License-Identifier: MIT
#include "tessera/partition/reshard.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>

#include "partition/spread_atoms.hpp"
#include "tessera/base/types.hpp"
#include "tessera/comm/virtual.hpp"

namespace tessera {
namespace {

using testing::HeldAtoms;
using testing::KeyedSystem;
using testing::Spread;

constexpr int kRankCounts[] = {1, 2, 3, 4, 5, 8};

using Comm = std::shared_ptr<Communicator>;

ReshardPlan build(const HeldAtoms& held, const Comm& comm)
{
  const auto splitters = cut_by_count(held.keys, held.ids, comm->num_ranks(), *comm);
  return ReshardPlan::build(held.keys, held.ids, splitters, comm);
}

void on_every_system(const std::function<void(const KeyedSystem&, Spread, const Comm&)>& body)
{
  for (const auto& system : testing::keyed_systems()) {
    for (const int num_ranks : kRankCounts) {
      for (const auto how : testing::kSpreads) {
        SCOPED_TRACE(std::string(system.name) + " on " + std::to_string(num_ranks) + " ranks");
        run_virtual_ranks(num_ranks, [&](const Comm& comm) { body(system, how, comm); });
      }
    }
  }
}

/// A value that names its atom.
Vec3 name_of(std::int64_t id) { return {static_cast<double>(id), 0.5 * static_cast<double>(id), -1.0 / (1.0 + id)}; }

std::vector<Vec3> names_of(std::span<const std::int64_t> ids)
{
  std::vector<Vec3> names;
  for (const auto id : ids) names.push_back(name_of(id));
  return names;
}

TEST(ReshardPlan, the_rows_of_all_shards_are_all_atoms_once_in_curve_order)
{
  for (const auto& system : testing::keyed_systems()) {
    std::vector<CurvePlace> expected;
    for (std::size_t n = 0; n < system.keys.size(); ++n) {
      expected.push_back({system.keys[n], static_cast<std::int64_t>(n) + 1});
    }
    std::sort(expected.begin(), expected.end());
    for (const int num_ranks : kRankCounts) {
      for (const auto how : testing::kSpreads) {
        std::vector<std::vector<std::int64_t>> rows(num_ranks);
        run_virtual_ranks(num_ranks, [&](const Comm& comm) {
          const auto plan = build(testing::spread(system, how, comm->rank(), num_ranks), comm);
          rows[comm->rank()].assign(plan.row_ids().begin(), plan.row_ids().end());
        });
        std::size_t n = 0;
        for (const auto& shard : rows) {
          const auto share = expected.size() / num_ranks;
          EXPECT_TRUE(shard.size() == share || shard.size() == share + 1) << system.name;
          for (const auto id : shard) {
            ASSERT_LT(n, expected.size());
            ASSERT_EQ(id, expected[n++].id) << system.name;
          }
        }
        EXPECT_EQ(n, expected.size()) << system.name;
      }
    }
  }
}

TEST(ReshardPlan, forward_brings_every_value_to_the_row_of_its_atom)
{
  on_every_system([](const KeyedSystem& system, Spread how, const Comm& comm) {
    const auto held = testing::spread(system, how, comm->rank(), comm->num_ranks());
    const auto plan = build(held, comm);
    EXPECT_EQ(plan.forward(std::span<const Vec3>(names_of(held.ids))), names_of(plan.row_ids()));
    EXPECT_EQ(plan.forward(std::span<const std::int64_t>(held.ids)),
              std::vector<std::int64_t>(plan.row_ids().begin(), plan.row_ids().end()));
  });
}

TEST(ReshardPlan, reverse_brings_every_value_back_in_the_callers_order)
{
  on_every_system([](const KeyedSystem& system, Spread how, const Comm& comm) {
    const auto held = testing::spread(system, how, comm->rank(), comm->num_ranks());
    const auto plan = build(held, comm);
    EXPECT_EQ(plan.reverse(std::span<const Vec3>(names_of(plan.row_ids()))), names_of(held.ids));
    std::vector<std::int32_t> numbers;
    for (const auto id : held.ids) numbers.push_back(static_cast<std::int32_t>(3 * id));
    EXPECT_EQ(plan.reverse(std::span<const std::int32_t>(plan.forward(std::span<const std::int32_t>(numbers)))),
              numbers);
  });
}

TEST(ReshardPlan, atoms_are_found_again_after_any_migration)
{
  on_every_system([](const KeyedSystem& system, Spread how, const Comm& comm) {
    auto plan = build(testing::spread(system, how, comm->rank(), comm->num_ranks()), comm);
    const std::vector<std::int64_t> rows(plan.row_ids().begin(), plan.row_ids().end());
    for (unsigned seed = 20; seed < 23; ++seed) {
      auto held = testing::spread(system, Spread::random, comm->rank(), comm->num_ranks(), seed);
      std::shuffle(held.ids.begin(), held.ids.end(), std::mt19937_64(seed));
      ASSERT_TRUE(plan.relabel(held.ids));
      EXPECT_EQ(plan.num_atoms(), static_cast<std::int64_t>(held.ids.size()));
      EXPECT_TRUE(std::equal(rows.begin(), rows.end(), plan.row_ids().begin(), plan.row_ids().end()));
      EXPECT_EQ(plan.forward(std::span<const Vec3>(names_of(held.ids))), names_of(rows));
      EXPECT_EQ(plan.reverse(std::span<const Vec3>(names_of(rows))), names_of(held.ids));
    }
  });
}

TEST(ReshardPlan, an_atom_added_lost_or_swapped_anywhere_is_noticed_by_all_ranks)
{
  const KeyedSystem system{"a_thousand_atoms", testing::random_keys(1000, kKeyEnd, 2)};
  enum class Change { added, lost, swapped };
  for (const int num_ranks : kRankCounts) {
    for (const auto change : {Change::added, Change::lost, Change::swapped}) {
      std::atomic<int> num_noticed = 0;
      run_virtual_ranks(num_ranks, [&](const Comm& comm) {
        const auto held = testing::spread(system, Spread::reversed, comm->rank(), num_ranks);
        auto plan = build(held, comm);
        auto ids = held.ids;
        if (comm->rank() == num_ranks - 1) {
          if (change != Change::added) ids.pop_back();
          if (change != Change::lost) ids.push_back(5000);
        }
        num_noticed += plan.relabel(ids) ? 0 : 1;
        EXPECT_EQ(plan.forward(std::span<const std::int64_t>(held.ids)),
                  std::vector<std::int64_t>(plan.row_ids().begin(), plan.row_ids().end()));
      });
      EXPECT_EQ(num_noticed, num_ranks);
    }
  }
}

/// Runs `body` on virtual ranks, each of which must fail with a collective error; returns the text.
std::string refusal_of(int num_ranks, const std::function<void(const Comm&)>& body)
{
  std::mutex mutex;
  std::map<std::string, int> texts;
  run_virtual_ranks(num_ranks, [&](const Comm& comm) {
    try {
      body(comm);
    } catch (const Error& error) {
      EXPECT_EQ(error.reach(), Reach::collective);
      const std::scoped_lock lock(mutex);
      ++texts[error.what()];
    }
  });
  EXPECT_EQ(texts.size(), 1U);
  if (texts.empty()) return "no error";
  EXPECT_EQ(texts.begin()->second, num_ranks);
  return texts.begin()->first;
}

TEST(ReshardPlan, an_id_that_occurs_twice_is_an_error_that_names_it)
{
  const KeyedSystem system{"fifty_atoms", testing::random_keys(50, kKeyEnd, 2)};
  for (const int num_ranks : kRankCounts) {
    const auto at_build = refusal_of(num_ranks, [&](const Comm& comm) {
      auto held = testing::spread(system, Spread::random, comm->rank(), num_ranks);
      if (comm->rank() == 0) held.add(kKeyEnd / 2, 17);
      (void)build(held, comm);
    });
    EXPECT_EQ(at_build.find("atom id 17 occurs more than once"), 0U) << at_build;
    const auto at_relabel = refusal_of(num_ranks, [&](const Comm& comm) {
      auto held = testing::spread(system, Spread::random, comm->rank(), num_ranks);
      auto plan = build(held, comm);
      if (comm->rank() == num_ranks - 1) held.ids.push_back(23);
      (void)plan.relabel(held.ids);
    });
    EXPECT_EQ(at_relabel.find("atom id 23 occurs more than once"), 0U) << at_relabel;
  }
}

TEST(ReshardPlan, a_rank_sends_only_to_ranks_with_which_it_shares_atoms)
{
  const KeyedSystem system{"a_thousand_atoms", testing::random_keys(1000, kKeyEnd, 2)};
  run_virtual_ranks(5, [&](const Comm& comm) {
    const auto held = testing::spread(system, Spread::first_rank_only, comm->rank(), 5);
    auto plan = build(held, comm);
    EXPECT_EQ(plan.num_messages(), comm->rank() == 0 ? 4 : 0);
    const std::vector<std::int64_t> rows(plan.row_ids().begin(), plan.row_ids().end());
    ASSERT_TRUE(plan.relabel(rows));  // the caller now holds exactly the shard
    EXPECT_EQ(plan.num_messages(), 0);
    EXPECT_EQ(plan.forward(std::span<const std::int64_t>(rows)), rows);
  });
}

TEST(ReshardPlan, values_of_another_number_of_atoms_are_refused)
{
  HeldAtoms held;
  held.add(3, 1);
  held.add(4, 2);
  const auto plan = build(held, make_serial_communicator());
  EXPECT_THROW((void)plan.forward(std::span<const Vec3>(names_of({}))), Error);
  EXPECT_THROW((void)plan.reverse(std::span<const Vec3>(names_of({}))), Error);
  try {
    (void)ReshardPlan::build(held.keys, held.ids, Splitters{{{3, 2}}}, make_serial_communicator());
    ADD_FAILURE() << "a cut into two shards was taken on one rank";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), std::string("reshard: expected a cut into 1 shards, found 2"));
  }
}

}  // namespace
}  // namespace tessera
