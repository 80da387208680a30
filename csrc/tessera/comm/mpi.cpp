// SPDX-License-Identifier: MIT
#include "tessera/comm/mpi.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>
#include <string>

#include "tessera/base/error.hpp"
#include "tessera/base/last_words.hpp"

namespace tessera {
namespace {

void check_mpi(int code, const char* call)
{
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(Reach::rank, "{} failed: {}", call, std::string(text, length));
}

#define TESSERA_MPI_CHECK(call) check_mpi(call, #call)

constexpr std::int64_t kLargestCount = std::numeric_limits<int>::max();
constexpr int kAllToAllTag = kLargestMpiTag + 1;

MPI_Op operation_of(Reduction reduction)
{
  switch (reduction) {
    case Reduction::sum:
      return MPI_SUM;
    case Reduction::min:
      return MPI_MIN;
    case Reduction::max:
      return MPI_MAX;
  }
  return MPI_OP_NULL;
}

int checked_count(std::size_t count, const char* operation)
{
  TESSERA_REQUIRE(static_cast<std::int64_t>(count) <= kLargestCount, "{} of {} items, MPI takes at most {}", operation,
                  count, kLargestCount);
  return static_cast<int>(count);
}

/// One message, in as many pieces as it needs; MPI keeps the order of pieces of one tag.
class MpiRequest final : public Request {
 public:
  MpiRequest(std::span<const std::byte> data, int to, int tag, MPI_Comm comm, std::int64_t piece)
  {
    for_each_piece(data.size(), piece, [&](std::int64_t first, int count) {
      TESSERA_MPI_CHECK(MPI_Isend(data.data() + first, count, MPI_BYTE, to, tag, comm, &add()));
    });
  }

  MpiRequest(std::span<std::byte> data, int from, int tag, MPI_Comm comm, std::int64_t piece)
  {
    for_each_piece(data.size(), piece, [&](std::int64_t first, int count) {
      expected_.push_back(count);
      TESSERA_MPI_CHECK(MPI_Irecv(data.data() + first, count, MPI_BYTE, from, tag, comm, &add()));
    });
  }

  ~MpiRequest() override
  {
    // Reached with live requests only after an error: the buffers die with the caller.
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }
  MpiRequest(const MpiRequest&) = delete;
  MpiRequest& operator=(const MpiRequest&) = delete;

  void wait() override
  {
    for (std::size_t k = 0; k < requests_.size(); ++k) {
      MPI_Status status;
      TESSERA_MPI_CHECK(MPI_Wait(&requests_[k], &status));
      if (expected_.empty()) continue;
      int found = 0;
      TESSERA_MPI_CHECK(MPI_Get_count(&status, MPI_BYTE, &found));
      TESSERA_REQUIRE(found == expected_[k], "message of tag {} from rank {}: expected {} bytes, found {}",
                      status.MPI_TAG, status.MPI_SOURCE, expected_[k], found);
    }
    requests_.clear();
    expected_.clear();
  }

 private:
  template <typename Act>
  static void for_each_piece(std::size_t bytes, std::int64_t piece, Act act)
  {
    const auto total = static_cast<std::int64_t>(bytes);
    std::int64_t first = 0;
    do {  // an empty message is still one message
      const std::int64_t count = std::min(piece, total - first);
      act(first, static_cast<int>(count));
      first += count;
    } while (first < total);
  }

  MPI_Request& add() { return requests_.emplace_back(MPI_REQUEST_NULL); }

  std::vector<MPI_Request> requests_;
  std::vector<int> expected_;  // bytes of each piece of a receive; empty for a send
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm parent, std::int64_t bytes_per_piece) : piece_(bytes_per_piece)
  {
    TESSERA_REQUIRE(piece_ >= 1 && piece_ <= kLargestCount, "pieces of {} bytes, expected 1 .. {}", piece_,
                    kLargestCount);
    int is_initialized = 0;
    TESSERA_MPI_CHECK(MPI_Initialized(&is_initialized));
    TESSERA_REQUIRE(is_initialized != 0, "MPI is not initialized: call MPI_Init first");
    TESSERA_MPI_CHECK(MPI_Comm_dup(parent, &comm_));
    TESSERA_MPI_CHECK(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    TESSERA_MPI_CHECK(MPI_Comm_rank(comm_, &rank_));
    TESSERA_MPI_CHECK(MPI_Comm_size(comm_, &num_ranks_));
  }

  ~MpiCommunicator() override
  {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized == 0) MPI_Comm_free(&comm_);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int num_ranks() const noexcept override { return num_ranks_; }

  void all_reduce(std::span<double> values, Reduction reduction) override
  {
    TESSERA_MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, values.data(), checked_count(values.size(), "all_reduce"), MPI_DOUBLE,
                                    operation_of(reduction), comm_));
  }

  void all_reduce(std::span<std::int64_t> values, Reduction reduction) override
  {
    TESSERA_MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, values.data(), checked_count(values.size(), "all_reduce"),
                                    MPI_INT64_T, operation_of(reduction), comm_));
  }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<const std::byte> record) override
  {
    const int count = checked_count(record.size(), "all_gather");
    std::vector<std::byte> all(record.size() * num_ranks_);
    TESSERA_MPI_CHECK(MPI_Allgather(record.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, comm_));
    return all;
  }

  [[nodiscard]] std::vector<std::byte> all_to_all(std::span<const std::byte> data,
                                                  std::span<const std::int64_t> bytes_to,
                                                  std::vector<std::int64_t>& bytes_from) override
  {
    const auto total = std::accumulate(bytes_to.begin(), bytes_to.end(), std::int64_t{0});
    TESSERA_REQUIRE(static_cast<int>(bytes_to.size()) == num_ranks_ && total == static_cast<std::int64_t>(data.size()),
                    "all_to_all: {} sizes of {} bytes in all, expected {} sizes of {} bytes", bytes_to.size(), total,
                    num_ranks_, data.size());
    bytes_from.assign(num_ranks_, 0);
    TESSERA_MPI_CHECK(MPI_Alltoall(bytes_to.data(), 1, MPI_INT64_T, bytes_from.data(), 1, MPI_INT64_T, comm_));

    // Point to point: most ranks have nothing for each other, and the counts may pass 2^31.
    std::vector<std::byte> received(std::accumulate(bytes_from.begin(), bytes_from.end(), std::int64_t{0}));
    std::vector<std::unique_ptr<Request>> requests;
    std::int64_t first = 0;
    for (int r = 0; r < num_ranks_; first += bytes_from[r++]) {
      if (bytes_from[r] == 0) continue;
      const std::span part = std::span(received).subspan(first, bytes_from[r]);
      requests.push_back(std::make_unique<MpiRequest>(part, r, kAllToAllTag, comm_, piece_));
    }
    first = 0;
    for (int r = 0; r < num_ranks_; first += bytes_to[r++]) {
      if (bytes_to[r] == 0) continue;
      requests.push_back(
          std::make_unique<MpiRequest>(data.subspan(first, bytes_to[r]), r, kAllToAllTag, comm_, piece_));
    }
    for (auto& request : requests) request->wait();
    return received;
  }

  [[nodiscard]] std::unique_ptr<Request> send(std::span<const std::byte> data, int to, int tag) override
  {
    check_address(to, tag);
    return std::make_unique<MpiRequest>(data, to, tag, comm_, piece_);
  }

  [[nodiscard]] std::unique_ptr<Request> receive(std::span<std::byte> data, int from, int tag) override
  {
    check_address(from, tag);
    return std::make_unique<MpiRequest>(data, from, tag, comm_, piece_);
  }

  void barrier() override { TESSERA_MPI_CHECK(MPI_Barrier(comm_)); }

  void abort(const char* reason) noexcept override
  {
    std::fprintf(stderr, "tessera: rank %d aborts the run: %s\n", rank_, reason);
    let_last_words_arrive();
    MPI_Abort(comm_, 1);
  }

 private:
  void check_address(int other, int tag) const
  {
    TESSERA_REQUIRE(other >= 0 && other < num_ranks_, "message with rank {} of {}", other, num_ranks_);
    TESSERA_REQUIRE(tag >= 0 && tag <= kLargestMpiTag, "tag {}, expected 0 .. {}", tag, kLargestMpiTag);
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::int64_t piece_;
  int rank_ = 0;
  int num_ranks_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent, std::int64_t bytes_per_piece)
{
  return std::make_unique<MpiCommunicator>(parent, bytes_per_piece);
}

}  // namespace tessera
