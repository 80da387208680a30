// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tessera/base/error.hpp"

namespace tessera::testing {

/// What `act` says of a failure of this rank; "no error" if it does not fail.
inline std::string failure_of(const std::function<void()>& act)
{
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.reach(), Reach::rank);
    return error.what();
  }
  return "no error";
}

}  // namespace tessera::testing
