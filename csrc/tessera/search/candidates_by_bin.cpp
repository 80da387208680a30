// SPDX-License-Identifier: MIT
// spatial-bin: a directory, spread over the ranks by a hash, knows who occupies and who wants each bin.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "tessera/search/candidate_selection.hpp"

namespace tessera {
namespace {

constexpr double kMostBins = 1e12;  // an axis; more would be finer than any reach, and overflow

using Bin = std::array<std::int64_t, 3>;

/// A grid of bins at least as wide as the reach, the same on all ranks.
class BinGrid {
 public:
  BinGrid(const Box& box, double reach)
  {
    for (int k = 0; k < 3; ++k) {
      is_periodic_[k] = box.periodic()[k];
      const double bins = box.height(k) / reach;
      num_bins_[k] = static_cast<std::int64_t>(std::clamp(std::floor(bins), 1.0, kMostBins));
      bins_per_fraction_[k] = is_periodic_[k] ? static_cast<double>(num_bins_[k]) : bins;
    }
  }

  [[nodiscard]] Bin bin_of(const Vec3& fraction) const
  {
    Bin bin{};
    for (int k = 0; k < 3; ++k) {
      const double place = std::clamp(std::floor(fraction[k] * bins_per_fraction_[k]), -kMostBins, kMostBins);
      bin[k] = static_cast<std::int64_t>(place);
      if (is_periodic_[k]) bin[k] = std::clamp<std::int64_t>(bin[k], 0, num_bins_[k] - 1);
    }
    return bin;
  }

  /// The bin and its neighbours; a periodic axis of one or two bins gives some of them twice.
  void append_around(const Bin& center, std::vector<Bin>& around) const
  {
    for (std::int64_t x = -1; x <= 1; ++x) {
      for (std::int64_t y = -1; y <= 1; ++y) {
        for (std::int64_t z = -1; z <= 1; ++z) {
          Bin bin{center[0] + x, center[1] + y, center[2] + z};
          for (int k = 0; k < 3; ++k) {
            if (is_periodic_[k]) bin[k] = (bin[k] + num_bins_[k]) % num_bins_[k];
          }
          around.push_back(bin);
        }
      }
    }
  }

 private:
  std::array<bool, 3> is_periodic_{};
  std::array<std::int64_t, 3> num_bins_{};
  Vec3 bins_per_fraction_{};
};

int home_of(const Bin& bin, int num_ranks)
{
  std::uint64_t hash = 0;
  for (const auto b : bin) {
    hash = (hash ^ static_cast<std::uint64_t>(b)) * 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio (Fibonacci hashing)
    hash ^= hash >> 29;
  }
  return static_cast<int>(hash % static_cast<std::uint64_t>(num_ranks));
}

/// A line of the directory: a rank occupies or wants a bin; on the way back: a rank wants what the receiver occupies.
struct Entry {
  Bin bin{};
  std::int64_t rank = 0;
  std::int64_t is_wanted = 0;
};

std::vector<Entry> exchange(const std::vector<std::vector<Entry>>& to, Communicator& communicator)
{
  std::vector<Entry> data;
  std::vector<std::int64_t> bytes_to, bytes_from;
  for (const auto& part : to) {
    data.insert(data.end(), part.begin(), part.end());
    bytes_to.push_back(static_cast<std::int64_t>(part.size() * sizeof(Entry)));
  }
  const auto bytes = communicator.all_to_all(std::as_bytes(std::span(data)), bytes_to, bytes_from);
  std::vector<Entry> arrived(bytes.size() / sizeof(Entry));
  if (!bytes.empty()) std::memcpy(arrived.data(), bytes.data(), bytes.size());
  return arrived;
}

/// Tells every occupant of a bin of this part of the directory who wants it.
std::vector<std::vector<Entry>> match(const std::vector<Entry>& directory, int num_ranks)
{
  struct Ranks {
    std::vector<std::int64_t> occupants, wanting;
  };
  std::map<Bin, Ranks> by_bin;
  for (const Entry& entry : directory) {
    Ranks& ranks = by_bin[entry.bin];
    (entry.is_wanted != 0 ? ranks.wanting : ranks.occupants).push_back(entry.rank);
  }
  std::vector<std::vector<Entry>> answers(num_ranks);
  for (const auto& [bin, ranks] : by_bin) {
    for (const auto occupant : ranks.occupants) {
      for (const auto wanting : ranks.wanting) {
        if (wanting != occupant) answers[occupant].push_back({bin, wanting, 1});
      }
    }
  }
  return answers;
}

}  // namespace

Selection select_by_bins(const CandidateContext& context)
{
  Communicator& communicator = context.communicator;
  const int num_ranks = communicator.num_ranks();
  double rounding = context.wrapped.rounding;  // the largest of all ranks', so that they agree on the grid
  communicator.all_reduce(std::span<double>(&rounding, 1), Reduction::max);
  const BinGrid grid(context.box, context.query.reach + 2 * rounding);

  std::map<Bin, std::vector<std::int64_t>> rows_of;
  for (std::size_t row = 0; row < context.wrapped.fractions.size(); ++row) {
    rows_of[grid.bin_of(context.wrapped.fractions[row])].push_back(static_cast<std::int64_t>(row));
  }
  std::vector<Bin> wanted;
  for (const auto& [bin, rows] : rows_of) grid.append_around(bin, wanted);
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());

  std::vector<std::vector<Entry>> entries(num_ranks);
  for (const auto& [bin, rows] : rows_of) entries[home_of(bin, num_ranks)].push_back({bin, communicator.rank(), 0});
  for (const Bin& bin : wanted) entries[home_of(bin, num_ranks)].push_back({bin, communicator.rank(), 1});
  const auto directory = exchange(entries, communicator);
  const auto requests = exchange(match(directory, num_ranks), communicator);

  Selection selection(num_ranks);
  for (const Entry& request : requests) {
    const auto& rows = rows_of.at(request.bin);
    selection[request.rank].insert(selection[request.rank].end(), rows.begin(), rows.end());
  }
  for (auto& rows : selection) std::sort(rows.begin(), rows.end());
  return selection;
}

}  // namespace tessera
