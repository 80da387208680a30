// SPDX-License-Identifier: MIT
#include "tessera/comm/virtual.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

using Message = std::vector<std::byte>;

/// What one rank lays on the table in a collective call.
struct Deposit {
  const char* operation = "";
  Message data;
  std::vector<std::int64_t> sizes;
};

struct Channel {
  std::int64_t num_sent = 0, num_received = 0;
  std::map<std::int64_t, Message> messages;
};

template <typename T>
void reduce_into(T& target, T value, Reduction reduction)
{
  switch (reduction) {
    case Reduction::sum:
      target += value;
      break;
    case Reduction::min:
      target = std::min(target, value);
      break;
    case Reduction::max:
      target = std::max(target, value);
      break;
  }
}

const char* name_of(Reduction reduction)
{
  switch (reduction) {
    case Reduction::sum:
      return "all_reduce(sum)";
    case Reduction::min:
      return "all_reduce(min)";
    case Reduction::max:
      return "all_reduce(max)";
  }
  return "all_reduce";
}

}  // namespace

/// Everything that the ranks share, behind one mutex.
struct VirtualWorld::Shared {
  explicit Shared(int num_ranks_) : num_ranks(num_ranks_), has_left(num_ranks_, false)
  {
    for (auto& table : tables) table.resize(num_ranks_);
  }

  void check() const { TESSERA_REQUIRE(!is_aborted, "the run was aborted: {}", reason); }

  void abort(const std::string& text)
  {
    if (is_aborted) return;
    is_aborted = true;
    reason = text;
    changed.notify_all();
  }

  /// Waits until `is_done`, the run is aborted, or a rank that `is_needed` has left.
  template <typename Done, typename Needed>
  void wait(std::unique_lock<std::mutex>& lock, int rank, const char* operation, Done is_done, Needed is_needed)
  {
    while (!is_done()) {
      check();
      for (int other = 0; other < num_ranks; ++other) {
        if (!has_left[other] || !is_needed(other)) continue;
        abort(format("rank {} waits in {} for rank {}, which has left", rank, operation, other));
      }
      check();
      changed.wait(lock);
    }
  }

  /// Lays `mine` on the table and returns everybody's deposits, once all are there.
  ///
  /// Two tables take turns: nobody can reach the next use of this one before all have read it, because the use of
  /// the other lies between and needs all.
  const std::vector<Deposit>& meet(int rank, Deposit mine)
  {
    std::unique_lock lock(mutex);
    check();
    const std::int64_t meeting = num_meetings;
    auto& table = tables[meeting % 2];
    const char* operation = mine.operation;
    table[rank] = std::move(mine);
    if (++num_arrived == num_ranks) {
      for (const Deposit& deposit : table) {
        if (std::strcmp(deposit.operation, operation) == 0) continue;
        abort(format("collective calls differ: {} on one rank, {} on another", operation, deposit.operation));
      }
      check();
      num_arrived = 0;
      ++num_meetings;
      changed.notify_all();
    } else {
      wait(lock, rank, operation, [&] { return num_meetings != meeting; }, [](int) { return true; });
    }
    return table;
  }

  const int num_ranks;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_aborted = false;
  std::string reason;
  std::vector<bool> has_left;
  std::int64_t num_meetings = 0;
  int num_arrived = 0;
  std::array<std::vector<Deposit>, 2> tables;
  std::map<std::tuple<int, int, int>, Channel> channels;  // by (from, to, tag)
};

namespace {

using Shared = VirtualWorld::Shared;

struct Sent final : Request {
  void wait() override {}
};

struct Receiving final : Request {
  Receiving(std::shared_ptr<Shared> shared_, std::span<std::byte> data_, std::tuple<int, int, int> key_,
            std::int64_t ticket_)
      : shared(std::move(shared_)), data(data_), key(key_), ticket(ticket_)
  {
  }

  void wait() override
  {
    const auto [from, to, tag] = key;
    Message message;
    {
      std::unique_lock lock(shared->mutex);
      auto& messages = shared->channels[key].messages;
      shared->wait(
          lock, to, "receive", [&] { return messages.contains(ticket); },
          [&, sender = from](int rank) { return rank == sender; });
      message = std::move(messages.extract(ticket).mapped());
    }
    TESSERA_REQUIRE(message.size() == data.size(),
                    "message of tag {} from rank {}: rank {} expected {} bytes, found {}", tag, from, to, data.size(),
                    message.size());
    if (!data.empty()) std::memcpy(data.data(), message.data(), data.size());
  }

  std::shared_ptr<Shared> shared;
  std::span<std::byte> data;
  std::tuple<int, int, int> key;
  std::int64_t ticket;
};

class VirtualCommunicator final : public Communicator {
 public:
  VirtualCommunicator(std::shared_ptr<Shared> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}

  ~VirtualCommunicator() override
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->has_left[rank_] = true;
    shared_->changed.notify_all();
  }
  VirtualCommunicator(const VirtualCommunicator&) = delete;
  VirtualCommunicator& operator=(const VirtualCommunicator&) = delete;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int num_ranks() const noexcept override { return shared_->num_ranks; }
  void all_reduce(std::span<double> values, Reduction reduction) override { reduce(values, reduction); }
  void all_reduce(std::span<std::int64_t> values, Reduction reduction) override { reduce(values, reduction); }
  void barrier() override { (void)shared_->meet(rank_, {"barrier", {}, {}}); }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<const std::byte> record) override
  {
    const auto& table = shared_->meet(rank_, {"all_gather", {record.begin(), record.end()}, {}});
    std::vector<std::byte> all;
    for (int r = 0; r < num_ranks(); ++r) {
      TESSERA_REQUIRE(table[r].data.size() == record.size(), "all_gather: rank {} gave {} bytes, rank {} gave {}",
                      rank_, record.size(), r, table[r].data.size());
      all.insert(all.end(), table[r].data.begin(), table[r].data.end());
    }
    return all;
  }

  [[nodiscard]] std::vector<std::byte> all_to_all(std::span<const std::byte> data,
                                                  std::span<const std::int64_t> bytes_to,
                                                  std::vector<std::int64_t>& bytes_from) override
  {
    std::int64_t total = 0;
    for (const auto bytes : bytes_to) total += bytes;
    TESSERA_REQUIRE(static_cast<int>(bytes_to.size()) == num_ranks() && total == static_cast<std::int64_t>(data.size()),
                    "all_to_all: {} sizes of {} bytes in all, expected {} sizes of {} bytes", bytes_to.size(), total,
                    num_ranks(), data.size());
    const auto& table =
        shared_->meet(rank_, {"all_to_all", {data.begin(), data.end()}, {bytes_to.begin(), bytes_to.end()}});
    std::vector<std::byte> received;
    bytes_from.assign(num_ranks(), 0);
    for (int r = 0; r < num_ranks(); ++r) {
      std::int64_t first = 0;
      for (int k = 0; k < rank_; ++k) first += table[r].sizes[k];
      bytes_from[r] = table[r].sizes[rank_];
      received.insert(received.end(), table[r].data.begin() + first, table[r].data.begin() + first + bytes_from[r]);
    }
    return received;
  }

  [[nodiscard]] std::unique_ptr<Request> send(std::span<const std::byte> data, int to, int tag) override
  {
    TESSERA_REQUIRE(to >= 0 && to < num_ranks(), "send to rank {} of {}", to, num_ranks());
    Message message(data.begin(), data.end());
    const std::scoped_lock lock(shared_->mutex);
    shared_->check();
    Channel& channel = shared_->channels[{rank_, to, tag}];
    channel.messages[channel.num_sent++] = std::move(message);
    shared_->changed.notify_all();
    return std::make_unique<Sent>();
  }

  [[nodiscard]] std::unique_ptr<Request> receive(std::span<std::byte> data, int from, int tag) override
  {
    TESSERA_REQUIRE(from >= 0 && from < num_ranks(), "receive from rank {} of {}", from, num_ranks());
    const std::scoped_lock lock(shared_->mutex);
    shared_->check();
    const std::tuple key{from, rank_, tag};
    return std::make_unique<Receiving>(shared_, data, key, shared_->channels[key].num_received++);
  }

  void abort(const char* reason) noexcept override
  {
    try {
      const std::scoped_lock lock(shared_->mutex);
      shared_->abort(format("rank {}: {}", rank_, reason));
    } catch (...) {  // out of memory for the text; the destructor will tell the others that this rank has left
    }
  }

 private:
  template <typename T>
  void reduce(std::span<T> values, Reduction reduction)
  {
    Deposit mine{name_of(reduction), Message(values.size_bytes()), {}};
    if (!values.empty()) std::memcpy(mine.data.data(), values.data(), values.size_bytes());
    const auto& table = shared_->meet(rank_, std::move(mine));
    for (int r = 0; r < num_ranks(); ++r) {
      TESSERA_REQUIRE(table[r].data.size() == values.size_bytes(), "all_reduce: rank {} gave {} bytes, rank {} gave {}",
                      rank_, values.size_bytes(), r, table[r].data.size());
      for (std::size_t k = 0; k < values.size(); ++k) {
        T value;
        std::memcpy(&value, table[r].data.data() + k * sizeof(T), sizeof(T));
        if (r == 0)
          values[k] = value;
        else
          reduce_into(values[k], value, reduction);
      }
    }
  }

  std::shared_ptr<Shared> shared_;
  int rank_;
};

}  // namespace

VirtualWorld::VirtualWorld(int num_ranks)
{
  TESSERA_REQUIRE(num_ranks >= 1, "a world has at least one rank, got {}", num_ranks);
  shared_ = std::make_shared<Shared>(num_ranks);
}

VirtualWorld::~VirtualWorld() = default;

int VirtualWorld::num_ranks() const noexcept { return shared_->num_ranks; }

std::unique_ptr<Communicator> VirtualWorld::communicator(int rank)
{
  TESSERA_REQUIRE(rank >= 0 && rank < num_ranks(), "rank {} of {}", rank, num_ranks());
  return std::make_unique<VirtualCommunicator>(shared_, rank);
}

void run_virtual_ranks(int num_ranks, const std::function<void(const std::shared_ptr<Communicator>&)>& body)
{
  VirtualWorld world(num_ranks);
  std::mutex mutex;
  // A collective error often says no more than that some rank failed: that rank's own reason is worth more, whichever
  // comes first. All ranks throw a collective error at one point, so it needs no abort.
  std::exception_ptr own_failure, collective_failure;
  const auto record = [&](std::exception_ptr& failure) {
    const std::scoped_lock lock(mutex);
    if (!failure) failure = std::current_exception();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, communicator = std::shared_ptr<Communicator>(world.communicator(rank))]() mutable {
      try {
        body(communicator);
      } catch (const Error& failure) {
        const bool is_collective = failure.reach() == Reach::collective;
        record(is_collective ? collective_failure : own_failure);
        if (!is_collective) communicator->abort(failure.what());
      } catch (const std::exception& failure) {
        record(own_failure);
        communicator->abort(failure.what());
      } catch (...) {
        record(own_failure);
        communicator->abort("unknown exception");
      }
      communicator.reset();  // leave now, not when the threads are joined
    });
  }
  for (auto& thread : threads) thread.join();
  if (own_failure) std::rethrow_exception(own_failure);
  if (collective_failure) std::rethrow_exception(collective_failure);
}

}  // namespace tessera
