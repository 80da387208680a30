// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/device_link.hpp"

namespace tessera {

/// A link between ranks that compute on the host: an exchange has happened when its call returns.
/// @param tag of all messages; nothing else may use it on this communicator.
[[nodiscard]] std::shared_ptr<DeviceLink> link_over(std::shared_ptr<Communicator> communicator, int tag);

/// A link of one rank with itself, on the host or a GPU: copies in the order of the stream.
[[nodiscard]] std::shared_ptr<DeviceLink> link_to_self(Device device);

}  // namespace tessera
