// SPDX-License-Identifier: MIT
#include "tessera/device/pooled_buffer.hpp"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(PooledBuffer, has_the_count_that_was_asked_for_and_headroom_beyond)
{
  PooledBuffer<double> buffer(0.5);
  EXPECT_EQ(buffer.resize(100).size(), 100U);
  EXPECT_EQ(buffer.count(), 100);
  EXPECT_EQ(buffer.capacity(), 150);
}

TEST(PooledBuffer, keeps_its_memory_within_the_capacity_and_never_shrinks)
{
  PooledBuffer<int> buffer(0.5);
  const int* first = buffer.resize(100).data();
  EXPECT_EQ(buffer.resize(0).data(), first);
  EXPECT_EQ(buffer.resize(150).data(), first);
  EXPECT_EQ(buffer.capacity(), 150);
  buffer.resize(151);
  EXPECT_EQ(buffer.capacity(), 226);
  EXPECT_EQ(buffer.items().size(), 151U);
}

TEST(PooledBuffer, an_empty_one_has_no_items)
{
  PooledBuffer<int> buffer;
  EXPECT_TRUE(buffer.items().empty());
  EXPECT_TRUE(buffer.resize(0).empty());
  EXPECT_EQ(buffer.capacity(), 0);
}

}  // namespace
}  // namespace tessera
