// SPDX-License-Identifier: MIT
#include "tessera/base/trace.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace tessera {
namespace {

void spend_time()
{
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() == start) {
  }
}

TEST(Trace, sums_visits_and_time_of_each_phase_by_name)
{
  Trace trace;
  for (int k = 0; k < 3; ++k) {
    const auto span = trace.span("search");
    spend_time();
  }
  const double so_far = trace.seconds("search");
  {
    const auto outer = trace.span("model");
    const auto inner = trace.span("search");
    spend_time();
  }
  EXPECT_EQ(trace.visits("search"), 4);
  EXPECT_EQ(trace.visits("model"), 1);
  EXPECT_GT(so_far, 0);
  EXPECT_GT(trace.seconds("search"), so_far);
  EXPECT_GE(trace.seconds("model"), trace.seconds("search") - so_far) << "the outer phase holds the inner";
}

TEST(Trace, a_phase_left_by_an_exception_is_counted)
{
  Trace trace;
  try {
    const auto span = trace.span("model");
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(trace.visits("model"), 1);
}

TEST(Trace, a_phase_never_entered_has_no_time)
{
  const Trace trace;
  EXPECT_EQ(trace.seconds("search"), 0);
  EXPECT_EQ(trace.visits("search"), 0);
}

}  // namespace
}  // namespace tessera
