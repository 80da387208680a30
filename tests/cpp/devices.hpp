// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "tessera/device/gpu.hpp"
#include "tessera/device/stream.hpp"

/// The host, and the first GPU if this build and machine have one.
inline std::vector<tessera::StreamRef> streams_to_test()
{
  std::vector<tessera::StreamRef> streams{{}};
  if (tessera::num_gpus() > 0) streams.push_back({tessera::Device{0}, nullptr});
  return streams;
}
