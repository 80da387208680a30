// SPDX-License-Identifier: MIT
#include "tessera/comm/communicator_link.hpp"

#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/device/memory.hpp"

namespace tessera {
namespace {

class CommunicatorLink final : public DeviceLink {
 public:
  CommunicatorLink(std::shared_ptr<Communicator> communicator, int tag)
      : communicator_(std::move(communicator)), tag_(tag)
  {
    TESSERA_REQUIRE(communicator_ != nullptr, "a link needs a communicator, found none");
  }

  [[nodiscard]] Device device() const noexcept override { return {}; }
  [[nodiscard]] int num_ranks() const noexcept override { return communicator_->num_ranks(); }

  void exchange(std::span<const Send> sends, std::span<const Receive> receives, StreamRef stream) override
  {
    TESSERA_REQUIRE(!stream.is_gpu(),
                    "expected buffers on the host, which is all that a communicator moves, found some of GPU {}; "
                    "connect the ranks with NCCL or stage the rows through the host",
                    stream.device.gpu);
    std::vector<std::unique_ptr<Request>> requests;
    for (const Receive& part : receives) {
      requests.push_back(communicator_->receive({static_cast<std::byte*>(part.data), part.bytes}, part.peer, tag_));
    }
    for (const Send& part : sends) {
      requests.push_back(communicator_->send({static_cast<const std::byte*>(part.data), part.bytes}, part.peer, tag_));
    }
    for (auto& request : requests) request->wait();
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  int tag_;
};

class SelfLink final : public DeviceLink {
 public:
  explicit SelfLink(Device device) : device_(device) {}

  [[nodiscard]] Device device() const noexcept override { return device_; }
  [[nodiscard]] int num_ranks() const noexcept override { return 1; }

  void exchange(std::span<const Send> sends, std::span<const Receive> receives, StreamRef stream) override
  {
    TESSERA_REQUIRE(stream.device == device_, "expected a stream of device {}, found one of {} (-1 is the host)",
                    device_.gpu, stream.device.gpu);
    TESSERA_REQUIRE(sends.size() == receives.size(), "a rank sends itself {} messages and receives {}", sends.size(),
                    receives.size());
    for (std::size_t k = 0; k < sends.size(); ++k) {
      TESSERA_REQUIRE(sends[k].peer == 0 && receives[k].peer == 0, "messages to rank {} and from rank {} of 1",
                      sends[k].peer, receives[k].peer);
      TESSERA_REQUIRE(sends[k].bytes == receives[k].bytes, "message {}: sent {} bytes, expected {}", k, sends[k].bytes,
                      receives[k].bytes);
      copy_bytes(receives[k].data, sends[k].data, sends[k].bytes, stream);
    }
  }

 private:
  Device device_;
};

}  // namespace

std::shared_ptr<DeviceLink> link_over(std::shared_ptr<Communicator> communicator, int tag)
{
  return std::make_shared<CommunicatorLink>(std::move(communicator), tag);
}

std::shared_ptr<DeviceLink> link_to_self(Device device) { return std::make_shared<SelfLink>(device); }

}  // namespace tessera
