// SPDX-License-Identifier: MIT
#include "tessera/partition/splitters.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

/// This rank's atoms in the order that is cut, with the weight before each.
class SortedAtoms {
 public:
  SortedAtoms(std::span<const Key> keys, std::span<const std::int64_t> ids, std::span<const std::int64_t> weights)
  {
    TESSERA_REQUIRE(keys.size() == ids.size() && ids.size() == weights.size(),
                    "cut: expected keys, ids and weights of the same atoms, found {}, {} and {}", keys.size(),
                    ids.size(), weights.size());
    std::vector<std::pair<CurvePlace, std::int64_t>> atoms;
    atoms.reserve(keys.size());
    for (std::size_t k = 0; k < keys.size(); ++k) {
      TESSERA_REQUIRE(keys[k] < kKeyEnd, "cut: atom {} has the key {}, expected less than {}", ids[k], keys[k],
                      kKeyEnd);
      TESSERA_REQUIRE(ids[k] >= 0 && ids[k] < std::numeric_limits<std::int64_t>::max(),
                      "cut: expected atom ids of at least 0 and below 2^63 - 1, found {}", ids[k]);
      TESSERA_REQUIRE(weights[k] >= 1, "cut: atom {} has the weight {}, expected at least 1 (count the atom itself)",
                      ids[k], weights[k]);
      atoms.emplace_back(CurvePlace{keys[k], ids[k]}, weights[k]);
    }
    std::sort(atoms.begin(), atoms.end());
    places_.reserve(atoms.size());
    weight_before_.reserve(atoms.size() + 1);
    weight_before_.push_back(0);
    for (const auto& [place, weight] : atoms) {
      places_.push_back(place);
      weight_before_.push_back(weight_before_.back() + weight);
    }
  }

  [[nodiscard]] bool is_empty() const { return places_.empty(); }
  [[nodiscard]] const std::vector<CurvePlace>& places() const { return places_; }
  [[nodiscard]] std::int64_t total() const { return weight_before_.back(); }
  [[nodiscard]] std::int64_t weight_below(const CurvePlace& place) const
  {
    return weight_before_[std::lower_bound(places_.begin(), places_.end(), place) - places_.begin()];
  }

 private:
  std::vector<CurvePlace> places_;
  std::vector<std::int64_t> weight_before_;
};

/// What all ranks' atoms span, and their weight.
struct Span {
  std::int64_t lowest_key = 0, last_key = 0, lowest_id = 0, last_id = 0, total = 0;
};

Span span_of(const SortedAtoms& atoms, Communicator& communicator)
{
  std::array<std::int64_t, 4> bounds;  // lowest, and minus the last, so that one minimum serves both
  bounds.fill(std::numeric_limits<std::int64_t>::max());
  if (!atoms.is_empty()) {
    bounds[0] = static_cast<std::int64_t>(atoms.places().front().key);
    bounds[1] = -static_cast<std::int64_t>(atoms.places().back().key);
    for (const CurvePlace& place : atoms.places()) {
      bounds[2] = std::min(bounds[2], place.id);
      bounds[3] = std::min(bounds[3], -place.id);
    }
  }
  communicator.all_reduce(std::span<std::int64_t>(bounds), Reduction::min);
  std::array<std::int64_t, 1> total{atoms.total()};
  communicator.all_reduce(std::span<std::int64_t>(total), Reduction::sum);
  if (total[0] == 0) return {};
  return {bounds[0], -bounds[1], bounds[2], -bounds[3], total[0]};
}

/// The search for one splitter: weight_below(low) < target <= weight_below(high), first along keys, then along ids.
struct Search {
  std::uint64_t low = 0, high = 0;
  std::int64_t target = 0;
  Key key = 0;  // where the ids are searched
  bool is_among_ids = false;
  bool is_done = false;
  CurvePlace found;
};

constexpr int kNumProbes = 15;  // a round shrinks each interval 16 times

/// The j-th of the probes that cut the interval into equal parts, j = 1 .. kNumProbes; at most `high`.
std::uint64_t probe(const Search& search, int j)
{
  const std::uint64_t width = search.high - search.low;
  const std::uint64_t step = width / (kNumProbes + 1) + (width % (kNumProbes + 1) != 0);
  return j * step >= width ? search.high : search.low + j * step;
}

CurvePlace place_of(const Search& search, std::uint64_t coordinate)
{
  if (search.is_among_ids) return {search.key, static_cast<std::int64_t>(coordinate)};
  return {coordinate, 0};
}

/// Narrows the interval by the weights below its probes.
void narrow(Search& search, std::span<const std::int64_t> weights_below, const Span& span)
{
  int j = 1;
  while (j <= kNumProbes && weights_below[j - 1] < search.target) ++j;
  if (j <= kNumProbes && weights_below[j - 1] == search.target) {
    search.found = place_of(search, probe(search, j));
    search.is_done = true;
    return;
  }
  const std::uint64_t low = j == 1 ? search.low : probe(search, j - 1);
  const std::uint64_t high = j > kNumProbes ? search.high : probe(search, j);
  search.low = low;
  search.high = high;
  if (high - low > 1) return;
  if (!search.is_among_ids) {
    // The cut falls among the atoms whose key is `low`, or right behind them.
    search.key = low;
    search.is_among_ids = true;
    search.low = span.lowest_id;
    search.high = span.last_id + 1;
  } else {
    search.found = place_of(search, high);
    search.is_done = true;
  }
}

/// Finds, for every target, the first place with at least that weight below it.
std::vector<CurvePlace> find_places(const SortedAtoms& atoms, const std::vector<std::int64_t>& targets,
                                    const Span& span, Communicator& communicator)
{
  std::vector<Search> searches;
  for (const std::int64_t target : targets) {
    Search search;
    search.low = static_cast<std::uint64_t>(span.lowest_key);
    search.high = static_cast<std::uint64_t>(span.last_key) + 1;
    search.target = target;
    search.is_done = target == 0;
    searches.push_back(search);
  }
  std::vector<std::int64_t> weights;
  for (;;) {
    weights.clear();
    for (const Search& search : searches) {
      if (search.is_done) continue;
      for (int j = 1; j <= kNumProbes; ++j) weights.push_back(atoms.weight_below(place_of(search, probe(search, j))));
    }
    if (weights.empty()) break;  // on all ranks alike: the searches depend on sums alone
    communicator.all_reduce(std::span(weights), Reduction::sum);
    std::span<const std::int64_t> rest(weights);
    for (Search& search : searches) {
      if (search.is_done) continue;
      narrow(search, rest.first(kNumProbes), span);
      rest = rest.subspan(kNumProbes);
    }
  }
  std::vector<CurvePlace> places;
  for (const Search& search : searches) places.push_back(search.found);
  return places;
}

}  // namespace

int Splitters::shard_of(const CurvePlace& place) const
{
  return static_cast<int>(std::upper_bound(first.begin(), first.end(), place) - first.begin());
}

Splitters::KeyRange Splitters::keys_of(int shard) const
{
  TESSERA_REQUIRE(shard >= 0 && shard < num_shards(), "shard {} of {}", shard, num_shards());
  KeyRange range{shard == 0 ? 0 : first[shard - 1].key, kKeyEnd - 1};
  if (shard < num_shards() - 1) {
    const CurvePlace& end = first[shard];
    if (end <= CurvePlace{range.lowest, shard == 0 ? 0 : first[shard - 1].id}) return {1, 0};
    range.highest = end.id > 0 ? end.key : end.key - 1;  // ids are not negative: (key, 0) is before all of its atoms
  }
  return range;
}

Splitters cut_by_count(std::span<const Key> keys, std::span<const std::int64_t> ids, int num_shards,
                       Communicator& communicator)
{
  TESSERA_REQUIRE(num_shards >= 1, "cut: expected at least one shard, found {}", num_shards);
  const SortedAtoms atoms(keys, ids, std::vector<std::int64_t>(ids.size(), 1));
  const Span span = span_of(atoms, communicator);
  std::vector<std::int64_t> targets;
  for (int shard = 1; shard < num_shards; ++shard) {
    targets.push_back(shard * (span.total / num_shards) + std::min<std::int64_t>(shard, span.total % num_shards));
  }
  return {find_places(atoms, targets, span, communicator)};
}

Splitters cut_by_weight(std::span<const Key> keys, std::span<const std::int64_t> ids,
                        std::span<const std::int64_t> weights, int num_shards, Communicator& communicator)
{
  TESSERA_REQUIRE(num_shards >= 1, "cut: expected at least one shard, found {}", num_shards);
  const SortedAtoms atoms(keys, ids, weights);
  const Span span = span_of(atoms, communicator);
  std::vector<std::int64_t> targets;
  for (std::int64_t shard = 1; shard < num_shards; ++shard) {
    const std::int64_t rest = shard * (span.total % num_shards);
    targets.push_back(shard * (span.total / num_shards) + (rest + num_shards - 1) / num_shards);
  }
  return {find_places(atoms, targets, span, communicator)};
}

}  // namespace tessera
