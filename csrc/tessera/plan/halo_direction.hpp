// SPDX-License-Identifier: MIT
#pragma once

namespace tessera {

/// What an exchange has in flight.
enum class HaloDirection { none, forward, reverse };

/// For error texts.
[[nodiscard]] inline const char* name_of(HaloDirection direction)
{
  switch (direction) {
    case HaloDirection::none:
      return "no exchange";
    case HaloDirection::forward:
      return "a forward exchange";
    case HaloDirection::reverse:
      return "a reverse exchange";
  }
  return "";
}

}  // namespace tessera
