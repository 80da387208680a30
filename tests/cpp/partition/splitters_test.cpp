// SPDX-License-Identifier: MIT
#include "tessera/partition/splitters.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "partition/spread_atoms.hpp"
#include "tessera/base/error.hpp"
#include "tessera/comm/virtual.hpp"

namespace tessera {
namespace {

using testing::KeyedSystem;
using testing::Spread;

constexpr int kRankCounts[] = {1, 2, 3, 4, 5, 8};

/// Passes on all-reduces, and counts them.
class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(Communicator& inner) : inner_(inner) {}
  [[nodiscard]] int rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] int num_ranks() const noexcept override { return inner_.num_ranks(); }
  void all_reduce(std::span<double> values, Reduction reduction) override
  {
    ++num_reductions;
    inner_.all_reduce(values, reduction);
  }
  void all_reduce(std::span<std::int64_t> values, Reduction reduction) override
  {
    ++num_reductions;
    inner_.all_reduce(values, reduction);
  }
  [[nodiscard]] std::vector<std::byte> all_gather(std::span<const std::byte>) override { return refuse(); }
  [[nodiscard]] std::vector<std::byte> all_to_all(std::span<const std::byte>, std::span<const std::int64_t>,
                                                  std::vector<std::int64_t>&) override
  {
    return refuse();
  }
  [[nodiscard]] std::unique_ptr<Request> send(std::span<const std::byte>, int, int) override
  {
    (void)refuse();
    return nullptr;
  }
  [[nodiscard]] std::unique_ptr<Request> receive(std::span<std::byte>, int, int) override
  {
    (void)refuse();
    return nullptr;
  }
  void barrier() override {}
  void abort(const char* reason) noexcept override { inner_.abort(reason); }

  int num_reductions = 0;

 private:
  static std::vector<std::byte> refuse() { throw std::logic_error("a cut moves counts, never atoms"); }
  Communicator& inner_;
};

/// The order that is cut, by the plainest means.
std::vector<CurvePlace> sorted_places(const KeyedSystem& system)
{
  std::vector<CurvePlace> places;
  for (std::size_t n = 0; n < system.keys.size(); ++n) {
    places.push_back({system.keys[n], static_cast<std::int64_t>(n) + 1});
  }
  std::sort(places.begin(), places.end());
  return places;
}

/// Cuts on virtual ranks; checks that all agree and count few all-reduces.
Splitters cut(const KeyedSystem& system, Spread how, int num_ranks, const std::vector<std::int64_t>* weights = nullptr)
{
  constexpr int kMostReductions = 64;
  std::vector<Splitters> found(num_ranks);
  run_virtual_ranks(num_ranks, [&](const std::shared_ptr<Communicator>& comm) {
    CountingCommunicator counting(*comm);
    const auto held = testing::spread(system, how, comm->rank(), num_ranks);
    if (weights == nullptr) {
      found[comm->rank()] = cut_by_count(held.keys, held.ids, num_ranks, counting);
    } else {
      std::vector<std::int64_t> mine;
      for (const auto id : held.ids) mine.push_back((*weights)[id - 1]);
      found[comm->rank()] = cut_by_weight(held.keys, held.ids, mine, num_ranks, counting);
    }
    EXPECT_LE(counting.num_reductions, kMostReductions) << system.name;
  });
  for (const auto& splitters : found) EXPECT_EQ(splitters.first, found[0].first) << system.name;
  return found[0];
}

TEST(Splitters, every_shard_has_its_equal_count_in_curve_order)
{
  for (const auto& system : testing::keyed_systems()) {
    const auto places = sorted_places(system);
    for (const int num_ranks : kRankCounts) {
      const auto splitters = cut(system, Spread::random, num_ranks);
      ASSERT_EQ(splitters.num_shards(), num_ranks);
      const auto share = static_cast<std::int64_t>(places.size()) / num_ranks;
      const auto larger = static_cast<std::int64_t>(places.size()) % num_ranks;
      std::size_t n = 0;
      for (int shard = 0; shard < num_ranks; ++shard) {
        for (std::int64_t k = 0; k < share + (shard < larger ? 1 : 0); ++k, ++n) {
          ASSERT_EQ(splitters.shard_of(places[n]), shard)
              << system.name << ": atom " << places[n].id << " of " << num_ranks << " shards";
        }
      }
    }
  }
}

TEST(Splitters, the_cut_does_not_depend_on_who_holds_the_atoms)
{
  for (const auto& system : testing::keyed_systems()) {
    for (const int num_ranks : kRankCounts) {
      const auto expected = cut(system, Spread::random, num_ranks);
      for (const auto how : testing::kSpreads) {
        EXPECT_EQ(cut(system, how, num_ranks).first, expected.first) << system.name;
      }
    }
  }
}

TEST(Splitters, one_process_can_cut_for_many_shards)
{
  const KeyedSystem system{"a_thousand_atoms", testing::random_keys(1000, kKeyEnd, 5)};
  const auto held = testing::spread(system, Spread::first_rank_only, 0, 1);
  const auto splitters = cut_by_count(held.keys, held.ids, 512, *make_serial_communicator());
  std::vector<int> counts(512, 0);
  for (const auto& place : sorted_places(system)) ++counts[splitters.shard_of(place)];
  for (int shard = 0; shard < 512; ++shard) EXPECT_EQ(counts[shard], shard < 1000 - 512 ? 2 : 1) << shard;
}

TEST(Splitters, equal_weights_are_cut_to_within_one_atom)
{
  for (const auto& system : testing::keyed_systems()) {
    std::mt19937_64 random(6);
    std::vector<std::int64_t> weights;
    for (std::size_t n = 0; n < system.keys.size(); ++n)
      weights.push_back(1 + static_cast<std::int64_t>(random() % 300));
    const auto total = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
    const auto heaviest = weights.empty() ? 0 : *std::max_element(weights.begin(), weights.end());
    for (const int num_ranks : kRankCounts) {
      const auto splitters = cut(system, Spread::random, num_ranks, &weights);
      std::vector<std::int64_t> before(num_ranks + 1, 0);
      int last = 0;
      for (const auto& place : sorted_places(system)) {
        const int shard = splitters.shard_of(place);
        ASSERT_GE(shard, last) << system.name;
        last = shard;
        before[shard + 1] += weights[place.id - 1];
      }
      std::partial_sum(before.begin(), before.end(), before.begin());
      for (int shard = 1; shard < num_ranks; ++shard) {
        EXPECT_GE(before[shard] * num_ranks, shard * total) << system.name << ", shard " << shard;
        EXPECT_LT((before[shard] - heaviest) * num_ranks, shard * total + (total == 0))
            << system.name << ", shard " << shard;
      }
      EXPECT_EQ(cut(system, Spread::reversed, num_ranks, &weights).first, splitters.first) << system.name;
    }
  }
}

TEST(Splitters, the_keys_of_the_shards_cover_the_curve_and_hold_their_atoms)
{
  for (const auto& system : testing::keyed_systems()) {
    for (const int num_ranks : kRankCounts) {
      const auto splitters = cut(system, Spread::random, num_ranks);
      Key covered = 0;  // one past the last key so far
      for (int shard = 0; shard < num_ranks; ++shard) {
        const auto range = splitters.keys_of(shard);
        if (range.lowest > range.highest) continue;
        EXPECT_LE(range.lowest, covered) << system.name;
        EXPECT_GE(range.lowest + 1, covered) << system.name;  // at most one key is shared
        covered = range.highest + 1;
      }
      EXPECT_EQ(covered, kKeyEnd) << system.name;
      for (const auto& place : sorted_places(system)) {
        const auto range = splitters.keys_of(splitters.shard_of(place));
        EXPECT_TRUE(range.lowest <= place.key && place.key <= range.highest) << system.name << ", atom " << place.id;
      }
    }
  }
}

TEST(Splitters, bad_atoms_are_refused_by_name)
{
  const auto text_of = [](Key key, std::int64_t id, std::int64_t weight) -> std::string {
    try {
      (void)cut_by_weight(std::vector<Key>{key}, std::vector<std::int64_t>{id}, std::vector<std::int64_t>{weight}, 2,
                          *make_serial_communicator());
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(text_of(1, 1, 1), "no error");
  EXPECT_NE(text_of(1, -4, 1).find("found -4"), std::string::npos);
  EXPECT_NE(text_of(kKeyEnd, 17, 1).find("atom 17"), std::string::npos);
  EXPECT_NE(text_of(1, 18, 0).find("atom 18 has the weight 0"), std::string::npos);
  const std::vector<Key> one_key(1);
  EXPECT_THROW((void)cut_by_count(one_key, {}, 2, *make_serial_communicator()), Error);
  EXPECT_THROW((void)cut_by_count({}, {}, 0, *make_serial_communicator()), Error);
}

}  // namespace
}  // namespace tessera
