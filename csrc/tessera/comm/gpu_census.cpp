// SPDX-License-Identifier: MIT
#include "tessera/comm/gpu_census.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/comm/local_rank.hpp"
#include "tessera/device/gpu.hpp"

namespace tessera {
namespace {

/// A description as ranks send it: equally long for all.
struct Record {
  std::array<char, 256> host{};  // POSIX: at most 255 bytes
  std::array<char, 32> bus_id{};
  char has_nccl = 0;
};

template <std::size_t size>
void write_text(std::array<char, size>& target, const std::string& text, const char* what)
{
  TESSERA_REQUIRE(text.size() < size, "expected {} of at most {} bytes, found '{}'", what, size - 1, text);
  std::copy(text.begin(), text.end(), target.begin());
}

}  // namespace

RankDevice describe_rank(Device device, bool has_nccl)
{
  return {host_name(), device.is_gpu() ? gpu_bus_id(device.gpu) : std::string(), has_nccl};
}

std::vector<RankDevice> gather_devices(Communicator& communicator, const RankDevice& mine)
{
  Record record;
  write_text(record.host, mine.host, "a host name");
  write_text(record.bus_id, mine.bus_id, "a bus number");
  record.has_nccl = mine.has_nccl ? 1 : 0;
  const auto bytes = communicator.all_gather(std::as_bytes(std::span(&record, 1)));
  std::vector<RankDevice> ranks;
  for (std::size_t first = 0; first < bytes.size(); first += sizeof(Record)) {
    std::memcpy(&record, bytes.data() + first, sizeof(Record));
    ranks.push_back({record.host.data(), record.bus_id.data(), record.has_nccl != 0});
  }
  return ranks;
}

std::string obstacle_to_nccl(std::span<const RankDevice> ranks)
{
  if (ranks.size() < 2) return "one rank has nobody to exchange with";
  std::map<std::pair<std::string, std::string>, std::size_t> user_of;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankDevice& here = ranks[rank];
    if (here.bus_id.empty()) return format("rank {} on {} computes on the host", rank, here.host);
    if (!here.has_nccl) return format("rank {} on {} runs a build without NCCL", rank, here.host);
    const auto [found, is_first] = user_of.try_emplace({here.host, here.bus_id}, rank);
    if (!is_first) {
      return format("ranks {} and {} share GPU {} of {}, and NCCL takes one rank a GPU", found->second, rank,
                    here.bus_id, here.host);
    }
  }
  return "";
}

}  // namespace tessera
