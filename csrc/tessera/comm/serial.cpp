// SPDX-License-Identifier: MIT
#include <cstring>
#include <deque>
#include <map>
#include <string>

#include "tessera/base/error.hpp"
#include "tessera/comm/communicator.hpp"

namespace tessera {
namespace {

using Message = std::vector<std::byte>;

/// One rank: collectives return what they are given, messages go to oneself.
class SerialCommunicator final : public Communicator {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int num_ranks() const noexcept override { return 1; }
  void all_reduce(std::span<double>, Reduction) override { check(); }
  void all_reduce(std::span<std::int64_t>, Reduction) override { check(); }
  void barrier() override { check(); }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<const std::byte> record) override
  {
    check();
    return {record.begin(), record.end()};
  }

  [[nodiscard]] std::vector<std::byte> all_to_all(std::span<const std::byte> data,
                                                  std::span<const std::int64_t> bytes_to,
                                                  std::vector<std::int64_t>& bytes_from) override
  {
    check();
    TESSERA_REQUIRE(bytes_to.size() == 1 && bytes_to[0] == static_cast<std::int64_t>(data.size()),
                    "all_to_all on one rank: bytes_to must be the one size {}", data.size());
    bytes_from.assign(1, bytes_to[0]);
    return {data.begin(), data.end()};
  }

  [[nodiscard]] std::unique_ptr<Request> send(std::span<const std::byte> data, int to, int tag) override
  {
    check();
    TESSERA_REQUIRE(to == 0, "send to rank {} of 1", to);
    Channel& channel = channels_[tag];
    channel.messages[channel.num_sent++] = Message(data.begin(), data.end());
    return std::make_unique<Sent>();
  }

  [[nodiscard]] std::unique_ptr<Request> receive(std::span<std::byte> data, int from, int tag) override
  {
    check();
    TESSERA_REQUIRE(from == 0, "receive from rank {} of 1", from);
    return std::make_unique<Receiving>(*this, data, tag, channels_[tag].num_received++);
  }

  void abort(const char* reason) noexcept override
  {
    is_aborted_ = true;
    try {
      reason_ = reason;
    } catch (...) {  // the flag alone must do
    }
  }

 private:
  struct Channel {
    std::int64_t num_sent = 0, num_received = 0;
    std::map<std::int64_t, Message> messages;
  };

  struct Sent final : Request {
    void wait() override {}
  };

  struct Receiving final : Request {
    Receiving(SerialCommunicator& owner_, std::span<std::byte> data_, int tag_, std::int64_t ticket_)
        : owner(owner_), data(data_), tag(tag_), ticket(ticket_)
    {
    }
    void wait() override
    {
      owner.check();
      auto& messages = owner.channels_[tag].messages;
      const auto found = messages.find(ticket);
      TESSERA_REQUIRE(found != messages.end(), "rank 0 waits for a message of tag {} that it never sent", tag);
      TESSERA_REQUIRE(found->second.size() == data.size(), "message of tag {}: expected {} bytes, found {}", tag,
                      data.size(), found->second.size());
      if (!data.empty()) std::memcpy(data.data(), found->second.data(), data.size());
      messages.erase(found);
    }
    SerialCommunicator& owner;
    std::span<std::byte> data;
    int tag;
    std::int64_t ticket;
  };

  void check() const { TESSERA_REQUIRE(!is_aborted_, "the run was aborted: {}", reason_); }

  std::map<int, Channel> channels_;
  bool is_aborted_ = false;
  std::string reason_;
};

}  // namespace

std::unique_ptr<Communicator> make_serial_communicator() { return std::make_unique<SerialCommunicator>(); }

}  // namespace tessera
