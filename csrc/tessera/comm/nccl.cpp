// SPDX-License-Identifier: MIT
#include "tessera/comm/nccl.hpp"

#include <nccl.h>

#include <cstring>
#include <exception>

#include "tessera/base/error.hpp"
#include "tessera/comm/gpu_census.hpp"

namespace tessera {
namespace {

void check_nccl(ncclResult_t result, ncclComm_t comm, const char* call)
{
  if (result == ncclSuccess) return;
  const char* detail = ncclGetLastError(comm);
  fail(Reach::rank, "NCCL: {} failed: {} ({}); NCCL_DEBUG=INFO in the environment tells more", call,
       ncclGetErrorString(result), detail != nullptr && *detail != '\0' ? detail : "no detail");
}

#define TESSERA_NCCL_CHECK(comm, call) check_nccl(call, comm, #call)

/// Messages that start together. Closed by end(); left early, by an error, NCCL drops what was named.
class Group {
 public:
  explicit Group(ncclComm_t comm) : comm_(comm) { TESSERA_NCCL_CHECK(comm_, ncclGroupStart()); }
  ~Group()
  {
    if (is_open_) (void)ncclGroupEnd();  // repeats the error that is already on its way
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void end()
  {
    is_open_ = false;
    TESSERA_NCCL_CHECK(comm_, ncclGroupEnd());
  }

 private:
  ncclComm_t comm_;
  bool is_open_ = true;
};

class NcclLink final : public DeviceLink {
 public:
  NcclLink(Device device, const ncclUniqueId& id, int rank, int num_ranks) : device_(device), num_ranks_(num_ranks)
  {
    const CurrentDevice scope(device);
    TESSERA_NCCL_CHECK(nullptr, ncclCommInitRank(&comm_, num_ranks, id, rank));
  }

  ~NcclLink() override
  {
    // A rank that fails does not wait for peers, who may never come.
    (void)(std::uncaught_exceptions() > num_exceptions_ ? ncclCommAbort(comm_) : ncclCommDestroy(comm_));
  }
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  [[nodiscard]] Device device() const noexcept override { return device_; }
  [[nodiscard]] int num_ranks() const noexcept override { return num_ranks_; }

  void exchange(std::span<const Send> sends, std::span<const Receive> receives, StreamRef stream) override
  {
    TESSERA_REQUIRE(stream.device == device_, "expected a stream of GPU {}, found one of {} (-1 is the host)",
                    device_.gpu, stream.device.gpu);
    check_earlier_exchanges();
    if (sends.empty() && receives.empty()) return;
    Group group(comm_);
    for (const Send& part : sends) {
      check_peer(part.peer);
      TESSERA_NCCL_CHECK(comm_, ncclSend(part.data, part.bytes, ncclUint8, part.peer, comm_, stream.handle));
    }
    for (const Receive& part : receives) {
      check_peer(part.peer);
      TESSERA_NCCL_CHECK(comm_, ncclRecv(part.data, part.bytes, ncclUint8, part.peer, comm_, stream.handle));
    }
    group.end();
  }

 private:
  void check_peer(int peer) const
  {
    TESSERA_REQUIRE(peer >= 0 && peer < num_ranks_, "message with rank {} of {}", peer, num_ranks_);
  }

  /// What went wrong after the call that queued it, for example in the network.
  void check_earlier_exchanges() const
  {
    ncclResult_t state = ncclSuccess;
    TESSERA_NCCL_CHECK(comm_, ncclCommGetAsyncError(comm_, &state));
    check_nccl(state, comm_, "an earlier exchange");
  }

  Device device_;
  int num_ranks_;
  int num_exceptions_ = std::uncaught_exceptions();
  ncclComm_t comm_ = nullptr;
};

/// The number by which the ranks find each other: rank 0's, told to all.
ncclUniqueId agree_on_id(Communicator& communicator)
{
  ncclUniqueId id{};
  if (communicator.rank() == 0) TESSERA_NCCL_CHECK(nullptr, ncclGetUniqueId(&id));
  const auto ids = communicator.all_gather(std::as_bytes(std::span(&id, 1)));
  std::memcpy(&id, ids.data(), sizeof(id));
  return id;
}

}  // namespace

bool has_nccl() noexcept { return true; }

NcclConnection connect_nccl(Communicator& communicator, Device device)
{
  std::string obstacle = obstacle_to_nccl(gather_devices(communicator, describe_rank(device, true)));
  if (!obstacle.empty()) return {nullptr, std::move(obstacle)};
  const ncclUniqueId id = agree_on_id(communicator);
  return {std::make_shared<NcclLink>(device, id, communicator.rank(), communicator.num_ranks()), ""};
}

}  // namespace tessera
