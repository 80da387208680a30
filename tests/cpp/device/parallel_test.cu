// SPDX-License-Identifier: MIT
#include "tessera/device/parallel.cuh"

#include <gtest/gtest.h>

#include <random>

#include "devices.hpp"

namespace tessera {
namespace {

constexpr int kSeed = 20261130;

std::vector<std::uint32_t> random_keys(std::int64_t count, std::uint32_t largest)
{
  std::mt19937 random(kSeed);
  std::uniform_int_distribution<std::uint32_t> uniform(0, largest);
  std::vector<std::uint32_t> keys(count);
  for (auto& key : keys) key = uniform(random);
  return keys;
}

DeviceArray<std::int64_t> squares(StreamRef stream, std::int64_t count)
{
  DeviceArray<std::int64_t> array(stream.device);
  auto* out = array.resize(count);
  parallel::for_each(stream, count, TESSERA_LAMBDA(std::int64_t k) { out[k] = k * k; });
  return array;
}

TEST(Parallel, EveryItemIsVisitedOnce)
{
  for (const StreamRef stream : streams_to_test()) {
    for (const std::int64_t count : {0, 1, 255, 256, 257, 100'000}) {
      const auto found = squares(stream, count).to_host(stream);
      ASSERT_EQ(found.size(), static_cast<std::size_t>(count));
      for (std::int64_t k = 0; k < count; ++k) ASSERT_EQ(found[k], k * k);
    }
  }
}

TEST(Parallel, AScanGivesTheSumOfWhatComesBefore)
{
  const auto values = random_keys(70'001, 3);
  for (const StreamRef stream : streams_to_test()) {
    DeviceArray<std::uint32_t> in(stream.device);
    in.assign(values, stream);
    DeviceArray<std::int64_t> out(stream.device);
    parallel::Scratch scratch(stream.device);
    parallel::exclusive_scan(stream, in.data(), out.resize(in.count()), in.count(), scratch);
    const auto found = out.to_host(stream);
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < values.size(); sum += values[k++]) ASSERT_EQ(found[k], sum);
  }
}

TEST(Parallel, ASortKeepsTheOrderOfEqualKeys)
{
  const auto keys = random_keys(50'000, 1023);
  std::vector<std::int32_t> values(keys.size());
  std::iota(values.begin(), values.end(), 0);
  for (const StreamRef stream : streams_to_test()) {
    DeviceArray<std::uint32_t> in(stream.device), sorted(stream.device);
    DeviceArray<std::int32_t> order(stream.device), sorted_order(stream.device);
    in.assign(keys, stream);
    order.assign(values, stream);
    parallel::Scratch scratch(stream.device);
    parallel::sort_by_key(stream, in.data(), sorted.resize(in.count()), order.data(), sorted_order.resize(in.count()),
                          in.count(), 10, scratch);
    const auto found = sorted.to_host(stream);
    const auto found_order = sorted_order.to_host(stream);
    for (std::size_t k = 0; k < keys.size(); ++k) {
      ASSERT_EQ(found[k], keys[found_order[k]]);
      if (k == 0) continue;
      ASSERT_LE(found[k - 1], found[k]);
      if (found[k - 1] == found[k]) {
        ASSERT_LT(found_order[k - 1], found_order[k]);
      }
    }
  }
}

TEST(Parallel, ColumnsAreSummedAlikeOnEveryDevice)
{
  constexpr std::int64_t kWidth = 10;
  std::mt19937 random(kSeed);
  std::normal_distribution<double> normal;
  for (const std::int64_t count : {0, 1, 64, 65, 5'000}) {
    std::vector<double> values(count * kWidth);
    for (auto& value : values) value = normal(random);
    std::vector<double> expected;
    for (const StreamRef stream : streams_to_test()) {
      DeviceArray<double> in(stream.device), out(stream.device), partial(stream.device);
      in.assign(values, stream);
      parallel::sum_columns(stream, in.data(), count, kWidth, out.resize(kWidth), partial);
      const auto found = out.to_host(stream);
      if (expected.empty()) expected = found;
      EXPECT_EQ(found, expected);  // to the last bit
      for (std::int64_t c = 0; c < kWidth; ++c) {
        double sum = 0;
        for (std::int64_t k = 0; k < count; ++k) sum += values[k * kWidth + c];
        EXPECT_NEAR(found[c], sum, 1e-11);  // another order of at most 5,000 terms of size 1
      }
    }
  }
}

TEST(Parallel, ColumnsHaveTheirOwnLargestValue)
{
  constexpr std::int64_t kWidth = 5;
  std::mt19937 random(kSeed);
  std::exponential_distribution<double> exponential;
  for (const std::int64_t count : {0, 1, 64, 65, 5'000}) {
    std::vector<double> values(count * kWidth);
    for (auto& value : values) value = exponential(random);
    std::vector<double> expected(kWidth, 0);
    for (std::int64_t k = 0; k < count * kWidth; ++k) expected[k % kWidth] = std::max(expected[k % kWidth], values[k]);
    for (const StreamRef stream : streams_to_test()) {
      DeviceArray<double> in(stream.device), out(stream.device), partial(stream.device);
      in.assign(values, stream);
      parallel::max_columns(stream, in.data(), count, kWidth, out.resize(kWidth), partial);
      EXPECT_EQ(out.to_host(stream), expected) << count << " rows";
    }
  }
}

}  // namespace
}  // namespace tessera
