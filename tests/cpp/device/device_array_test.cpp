// SPDX-License-Identifier: MIT
#include "tessera/device/device_array.hpp"

#include <gtest/gtest.h>

#include "devices.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

TEST(DeviceArray, ContentsComeBackAsTheyWent)
{
  const std::vector<double> values{1.5, -2.0, 1e300};
  for (const StreamRef stream : streams_to_test()) {
    DeviceArray<double> array(stream.device);
    array.assign(values, stream);
    EXPECT_EQ(array.to_host(stream), values);
  }
}

TEST(DeviceArray, TheAddressStaysWhileTheCapacityDoes)
{
  for (const StreamRef stream : streams_to_test()) {
    DeviceArray<int> array(stream.device);
    const int* first = array.resize(1000, 0.5);
    EXPECT_EQ(array.capacity(), 1500);
    EXPECT_EQ(array.resize(1500), first);
    EXPECT_EQ(array.resize(3), first);
    EXPECT_EQ(array.count(), 3);
    array.resize(1501, 0);
    EXPECT_EQ(array.capacity(), 1501);
  }
}

TEST(DeviceArray, AMoveLeavesNothingBehindTwice)
{
  for (const StreamRef stream : streams_to_test()) {
    DeviceArray<int> array(stream.device);
    array.assign(std::vector{1, 2, 3}, stream);
    const DeviceArray<int> moved(std::move(array));
    EXPECT_EQ(moved.to_host(stream), (std::vector{1, 2, 3}));
  }
}

TEST(DeviceArray, TooMuchGpuMemoryIsRefusedWithTheNumbers)
{
  if (num_gpus() == 0) GTEST_SKIP() << "needs a GPU";
  DeviceArray<std::byte> array(Device{0});
  try {
    array.resize(std::int64_t{1} << 50);
    FAIL() << "a petabyte was given";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("free on"), std::string::npos) << error.what();
  }
  EXPECT_EQ(array.capacity(), 0);
  array.resize(10);  // and the array still works
}

TEST(DeviceArray, AGpuIsRefusedWhereThereIsNone)
{
  if (has_cuda()) GTEST_SKIP() << "needs a build without CUDA";
  EXPECT_THROW((void)DeviceArray<int>(Device{0}).resize(1), Error);
}

}  // namespace
}  // namespace tessera
