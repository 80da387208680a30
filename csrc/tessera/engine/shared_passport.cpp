// SPDX-License-Identifier: MIT
#include "tessera/engine/shared_passport.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

/// What a rank tells the others: equally long for all, so that a longer text is cut.
struct Record {
  std::array<char, 1024> failure{};  // empty: none
  std::array<char, 72> weights{};    // a SHA-256 in hexadecimal digits
};

template <std::size_t size>
void write_text(std::array<char, size>& target, const std::string& text)
{
  std::copy_n(text.begin(), std::min(text.size(), size - 1), target.begin());
}

std::vector<Record> gather(Communicator& communicator, const Record& mine)
{
  const auto bytes = communicator.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<Record> records(bytes.size() / sizeof(Record));
  std::memcpy(records.data(), bytes.data(), bytes.size());
  return records;
}

}  // namespace

Passport read_shared_passport(const std::string& path, Communicator& communicator)
{
  Passport passport;
  Record mine;
  try {
    passport = read_passport(path);
    write_text(mine.weights, passport.weights_sha256);
  } catch (const std::exception& problem) {
    write_text(mine.failure, problem.what());
  }
  const std::vector<Record> ranks = gather(communicator, mine);
  const auto has_failed = [](const Record& record) { return record.failure[0] != '\0'; };
  const auto failed = std::find_if(ranks.begin(), ranks.end(), has_failed);
  if (std::all_of(ranks.begin(), ranks.end(), has_failed)) fail(Reach::collective, "{}", failed->failure.data());
  if (failed != ranks.end()) fail(Reach::collective, "rank {}: {}", failed - ranks.begin(), failed->failure.data());
  const auto other = std::find_if(ranks.begin(), ranks.end(),
                                  [&](const Record& record) { return record.weights != ranks.front().weights; });
  if (other != ranks.end()) {
    fail(
        Reach::collective,
        "{}: expected one model on all ranks, found weights {} on rank 0 and {} on rank {}; copy one file to all hosts",
        path, ranks.front().weights.data(), other->weights.data(), other - ranks.begin());
  }
  return passport;
}

}  // namespace tessera
