// SPDX-License-Identifier: MIT
#include "tessera/comm/local_rank.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <span>
#include <system_error>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

using HostName = std::array<char, 256>;  // POSIX: at most 255 bytes

}  // namespace

std::string host_name()
{
  HostName name{};
  TESSERA_REQUIRE(gethostname(name.data(), name.size() - 1) == 0, "the host does not tell its name: {}",
                  std::strerror(errno));
  return name.data();
}

int local_rank(Communicator& communicator)
{
  HostName name{};
  const std::string text = host_name();
  std::copy(text.begin(), text.end(), name.begin());
  const std::vector<std::byte> names = communicator.all_gather(std::as_bytes(std::span(name)));
  const auto name_of = [&](int rank) { return names.data() + static_cast<std::size_t>(rank) * name.size(); };
  int place = 0;
  for (int rank = 0; rank < communicator.rank(); ++rank) {
    if (std::memcmp(name_of(rank), name.data(), name.size()) == 0) ++place;
  }
  return place;
}

std::optional<int> launcher_local_rank()
{
  for (const char* name : {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    int place = -1;
    const char* end = text + std::strlen(text);
    const auto [last, error] = std::from_chars(text, end, place);
    if (error == std::errc{} && last == end && place >= 0) return place;
  }
  return {};
}

}  // namespace tessera
