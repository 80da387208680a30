// SPDX-License-Identifier: MIT
#include "tessera/base/memory_reserve.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <new>
#include <optional>

namespace tessera {
namespace {

/// No machine has it, and no reserve.
constexpr std::size_t kTooMuch = std::numeric_limits<std::size_t>::max() / 4;

int num_calls = 0;

void count_and_give_up()
{
  ++num_calls;
  throw std::bad_alloc();
}

TEST(MemoryReserve, is_freed_by_the_first_request_that_finds_nothing_and_not_again)
{
  const MemoryReserve reserve;
  ASSERT_TRUE(MemoryReserve::is_full());
  EXPECT_THROW((void)::operator new(kTooMuch), std::bad_alloc);
  EXPECT_FALSE(MemoryReserve::is_full());
  EXPECT_THROW((void)::operator new(kTooMuch), std::bad_alloc);
}

TEST(MemoryReserve, is_filled_again_on_request)
{
  MemoryReserve reserve;
  EXPECT_THROW((void)::operator new(kTooMuch), std::bad_alloc);
  reserve.refill();
  EXPECT_TRUE(MemoryReserve::is_full());
}

TEST(MemoryReserve, leaves_the_last_word_to_the_earlier_handler_and_restores_it)
{
  const auto before = std::set_new_handler(count_and_give_up);
  num_calls = 0;
  {
    const MemoryReserve one;
    const MemoryReserve two;
    EXPECT_NE(std::get_new_handler(), count_and_give_up);
    EXPECT_THROW((void)::operator new(kTooMuch), std::bad_alloc);
    EXPECT_EQ(num_calls, 1);  // once the reserve was gone
  }
  EXPECT_EQ(std::get_new_handler(), count_and_give_up);
  EXPECT_FALSE(MemoryReserve::is_full());
  std::set_new_handler(before);
}

TEST(MemoryReserve, outlives_the_first_of_two)
{
  std::optional<MemoryReserve> first(std::in_place);
  const MemoryReserve second;
  first.reset();
  EXPECT_TRUE(MemoryReserve::is_full());
  EXPECT_NE(std::get_new_handler(), nullptr);
}

}  // namespace
}  // namespace tessera
