// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/plan/build_halo_plan.hpp"
#include "tessera/plan/halo_exchange.hpp"

// What a halo plan and its exchange promise, as bodies that all ranks run; they never name the back end. Each is made
// for a class like Halo, which says how rows are exchanged.
namespace tessera::contract {

using SharedCommunicator = std::shared_ptr<Communicator>;

constexpr int kTag = 3;
constexpr double kSumTolerance = 1e-12;  // relative; sums of a few hundred products of numbers near 1

/// Uneven, and some ranks own nothing.
inline std::int64_t owned_by(int rank) { return (rank * 7 + 4) % 6; }

/// The rows that `reader` needs of every owner: the same answer on all ranks, sometimes of itself.
inline std::vector<NeededRows> needed_by(int reader, int num_ranks)
{
  std::vector<NeededRows> needed;
  for (int owner = 0; owner < num_ranks; ++owner) {
    std::mt19937_64 random(100 * reader + owner);
    NeededRows part{owner, {}};
    for (std::int64_t row = owned_by(owner) - 1; row >= 0; --row) {
      if (random() % 3 != 0) part.rows.push_back(row);
    }
    if (random() % 4 != 0 || num_ranks == 1) needed.push_back(std::move(part));
  }
  return needed;
}

/// Needed rows that come and go from epoch to epoch, whole peers with them; the same answer on all ranks.
inline std::vector<NeededRows> needed_in_epoch(int epoch, int reader, int num_ranks, std::int64_t num_owned)
{
  std::vector<NeededRows> needed;
  for (int owner = 0; owner < num_ranks; ++owner) {
    std::mt19937_64 random(10000 * epoch + 100 * reader + owner);
    const std::uint64_t odds = 1 + random() % 5;  // few or many rows
    NeededRows part{owner, {}};
    for (std::int64_t row = 0; row < num_owned; ++row) {
      if (random() % odds == 0) part.rows.push_back(row);
    }
    std::shuffle(part.rows.begin(), part.rows.end(), random);
    if (random() % 3 != 0) needed.push_back(std::move(part));
  }
  return needed;
}

/// A plan and its exchange on the host.
struct Halo {
  explicit Halo(const SharedCommunicator& comm)
      : needed(needed_by(comm->rank(), comm->num_ranks())),
        plan(std::make_shared<HaloPlan>(build_halo_plan(1, owned_by(comm->rank()), needed, *comm))),
        exchange(plan, comm, kTag)
  {
  }

  template <typename T>
  std::vector<T> forward(const std::vector<T>& owned, std::int64_t channels)
  {
    std::vector<T> halo(plan->num_halo * channels, T(-1));
    exchange.start_forward(owned.data(), channels, sizeof(T) == 4 ? Scalar::float32 : Scalar::float64);
    exchange.wait_forward(halo.data());
    return halo;
  }

  template <typename T>
  void reverse(const std::vector<T>& halo, std::int64_t channels, std::vector<T>& owned)
  {
    exchange.start_reverse(halo.data(), channels, sizeof(T) == 4 ? Scalar::float32 : Scalar::float64);
    exchange.wait_reverse(owned.data());
  }

  std::vector<NeededRows> needed;
  std::shared_ptr<const HaloPlan> plan;
  HaloExchange exchange;
};

/// A number that names the owner, the row and the channel; exact in float32.
template <typename T>
T name_of(int owner, std::int64_t row, std::int64_t channel)
{
  return static_cast<T>(10000 * owner + 100 * row + channel);
}

template <typename T, typename Exchanger = Halo>
void halo_rows_carry_their_owners_name(const SharedCommunicator& comm)
{
  Exchanger halo(comm);
  for (const std::int64_t channels : {1, 3, 40, 2, 0}) {  // grows and shrinks within the pooled buffers
    std::vector<T> owned;
    for (std::int64_t row = 0; row < halo.plan->num_owned; ++row) {
      for (std::int64_t c = 0; c < channels; ++c) owned.push_back(name_of<T>(comm->rank(), row, c));
    }
    std::vector<T> expected;
    for (const NeededRows& part : halo.needed) {
      for (const auto row : part.rows) {
        for (std::int64_t c = 0; c < channels; ++c) expected.push_back(name_of<T>(part.rank, row, c));
      }
    }
    EXPECT_EQ(halo.forward(owned, channels), expected);
  }
}

template <typename T, typename Exchanger = Halo>
void forward_then_reverse_of_ones_counts_the_copies(const SharedCommunicator& comm)
{
  Exchanger halo(comm);
  constexpr std::int64_t kChannels = 2;
  std::vector<T> copies(halo.plan->num_owned * kChannels, T(1));
  const auto ones = halo.forward(copies, kChannels);
  EXPECT_EQ(ones, std::vector<T>(ones.size(), T(1)));
  halo.reverse(ones, kChannels, copies);  // on top of the ones that stand there
  std::vector<T> expected(copies.size(), T(1));
  for (int reader = 0; reader < comm->num_ranks(); ++reader) {
    for (const NeededRows& part : needed_by(reader, comm->num_ranks())) {
      if (part.rank != comm->rank()) continue;
      for (const auto row : part.rows) {
        for (std::int64_t c = 0; c < kChannels; ++c) expected[row * kChannels + c] += T(1);
      }
    }
  }
  EXPECT_EQ(copies, expected);
}

inline std::vector<double> random_numbers(std::int64_t count, unsigned seed)
{
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> numbers(count);
  for (double& x : numbers) x = uniform(random);
  return numbers;
}

/// <A x, y> == <x, A^T y> over all ranks, and reverse repeats bit for bit.
template <typename Exchanger = Halo>
void reverse_is_the_transpose_of_forward(const SharedCommunicator& comm)
{
  Exchanger halo(comm);
  constexpr std::int64_t kChannels = 5;
  const auto x = random_numbers(halo.plan->num_owned * kChannels, 1 + comm->rank());
  const auto y = random_numbers(halo.plan->num_halo * kChannels, 100 + comm->rank());
  const auto forward_x = halo.forward(x, kChannels);
  std::vector<double> reverse_y(x.size(), 0), again(x.size(), 0);
  halo.reverse(y, kChannels, reverse_y);
  halo.reverse(y, kChannels, again);
  EXPECT_EQ(reverse_y, again);
  std::vector<double> products(3, 0);
  for (std::size_t k = 0; k < y.size(); ++k) products[0] += forward_x[k] * y[k];
  for (std::size_t k = 0; k < x.size(); ++k) products[1] += x[k] * reverse_y[k];
  for (const double value : y) products[2] += std::abs(value);
  comm->all_reduce(std::span<double>(products), Reduction::sum);
  EXPECT_NEAR(products[0], products[1], kSumTolerance * (1 + products[2]));
  EXPECT_GT(products[2], 0) << "the plan is empty, the test means nothing";
}

/// Messages of a lagging rank do not meet those of the next exchange.
template <typename Exchanger = Halo>
void exchanges_in_a_row_do_not_mix(const SharedCommunicator& comm)
{
  Exchanger halo(comm);
  for (int round = 0; round < 20; ++round) {
    const std::vector<double> owned(halo.plan->num_owned, round);
    const auto received = halo.forward(owned, 1);
    EXPECT_EQ(received, std::vector<double>(received.size(), round));
    std::vector<double> sums(owned.size(), 0);
    halo.reverse(std::vector<double>(received.size(), 1000 + round), 1, sums);
    for (const double sum : sums) EXPECT_EQ(std::fmod(sum, 1000 + round), 0);
  }
}

}  // namespace tessera::contract
