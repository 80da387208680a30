// SPDX-License-Identifier: MIT
#include "tessera/partition/reshard.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace tessera {
namespace {

/// Records of a trivially copyable type, packed in rank order.
template <typename Record>
struct Packed {
  std::vector<Record> records;
  std::vector<std::int64_t> first;  // [num_ranks + 1]
};

/// Each rank gets the records that the others have packed for it.
template <typename Record>
Packed<Record> scatter(const Packed<Record>& outgoing, Communicator& communicator)
{
  const int num_ranks = communicator.num_ranks();
  std::vector<std::int64_t> bytes_to(num_ranks), bytes_from;
  for (int r = 0; r < num_ranks; ++r) {
    bytes_to[r] = (outgoing.first[r + 1] - outgoing.first[r]) * static_cast<std::int64_t>(sizeof(Record));
  }
  const auto bytes = communicator.all_to_all(std::as_bytes(std::span(outgoing.records)), bytes_to, bytes_from);
  Packed<Record> incoming;
  incoming.records.resize(bytes.size() / sizeof(Record));
  if (!bytes.empty()) std::memcpy(incoming.records.data(), bytes.data(), bytes.size());
  incoming.first.assign(1, 0);
  for (int r = 0; r < num_ranks; ++r) {
    incoming.first.push_back(incoming.first.back() + bytes_from[r] / static_cast<std::int64_t>(sizeof(Record)));
  }
  return incoming;
}

/// Where each rank's part begins when `rank_of[order[k]]` ascends with k.
std::vector<std::int64_t> count_by_rank(std::span<const int> rank_of, int num_ranks)
{
  std::vector<std::int64_t> first(num_ranks + 1, 0);
  for (const int rank : rank_of) ++first[rank + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  return first;
}

/// Numbers 0 .. count-1 sorted by `less`.
template <typename Less>
std::vector<std::int64_t> sorted_order(std::size_t count, Less less)
{
  std::vector<std::int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), less);
  return order;
}

/// Ends the call on all ranks alike if any of them has seen an id twice.
void refuse_duplicates(std::int64_t duplicate, Communicator& communicator)
{
  std::array<std::int64_t, 1> largest{duplicate};
  communicator.all_reduce(std::span<std::int64_t>(largest), Reduction::max);
  if (largest[0] < 0) return;
  fail(Reach::collective,
       "atom id {} occurs more than once; Tessera needs one id for each atom (LAMMPS: reset_atoms id)", largest[0]);
}

/// The rank whose part of the directory holds an id; mixed, so that any pattern of ids spreads evenly.
int directory_rank(std::int64_t id, int num_ranks)
{
  auto bits = static_cast<std::uint64_t>(id);  // finaliser of splitmix64 (Steele et al., OOPSLA 2014)
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<int>((bits ^ (bits >> 31)) % static_cast<std::uint64_t>(num_ranks));
}

}  // namespace

ReshardPlan::ReshardPlan(std::shared_ptr<Communicator> communicator, int tag)
    : communicator_(std::move(communicator)), tag_(tag)
{
}

ReshardPlan ReshardPlan::build(std::span<const Key> keys, std::span<const std::int64_t> ids, const Splitters& splitters,
                               std::shared_ptr<Communicator> communicator, int tag)
{
  const int num_ranks = communicator->num_ranks();
  TESSERA_REQUIRE(keys.size() == ids.size(), "reshard: expected keys and ids of the same atoms, found {} and {}",
                  keys.size(), ids.size());
  TESSERA_REQUIRE(splitters.num_shards() == num_ranks, "reshard: expected a cut into {} shards, found {}", num_ranks,
                  splitters.num_shards());
  ReshardPlan plan(std::move(communicator), tag);
  plan.num_atoms_ = static_cast<std::int64_t>(ids.size());
  const auto place = [&](std::int64_t atom) { return CurvePlace{keys[atom], ids[atom]}; };
  plan.outward_.places = sorted_order(ids.size(), [&](std::int64_t a, std::int64_t b) { return place(a) < place(b); });
  Packed<CurvePlace> outgoing;
  std::vector<int> shards;
  for (const std::int64_t atom : plan.outward_.places) {
    outgoing.records.push_back(place(atom));
    shards.push_back(splitters.shard_of(place(atom)));
  }
  outgoing.first = plan.outward_.first = count_by_rank(shards, num_ranks);
  const auto incoming = scatter(outgoing, *plan.communicator_);
  const auto& records = incoming.records;
  const auto order =
      sorted_order(records.size(), [&](std::int64_t a, std::int64_t b) { return records[a] < records[b]; });
  plan.inward_.first = incoming.first;
  plan.inward_.places.resize(records.size());
  for (std::size_t row = 0; row < order.size(); ++row) {
    plan.row_ids_.push_back(records[order[row]].id);
    plan.inward_.places[order[row]] = static_cast<std::int64_t>(row);
  }
  plan.register_rows();
  return plan;
}

void ReshardPlan::register_rows()
{
  struct Entry {
    std::int64_t id, row;
  };
  const int num_ranks = communicator_->num_ranks();
  std::vector<int> ranks;
  for (const std::int64_t id : row_ids_) ranks.push_back(directory_rank(id, num_ranks));
  const auto order = sorted_order(
      ranks.size(), [&](std::int64_t a, std::int64_t b) { return std::pair(ranks[a], a) < std::pair(ranks[b], b); });
  Packed<Entry> outgoing;
  outgoing.first = count_by_rank(ranks, num_ranks);
  for (const std::int64_t row : order) outgoing.records.push_back({row_ids_[row], row});
  const auto incoming = scatter(outgoing, *communicator_);
  directory_.clear();
  std::int64_t duplicate = -1;
  for (int r = 0; r < num_ranks; ++r) {
    for (std::int64_t k = incoming.first[r]; k < incoming.first[r + 1]; ++k) {
      const Entry& entry = incoming.records[k];
      directory_.push_back({entry.id, {r, entry.row}});
    }
  }
  std::sort(directory_.begin(), directory_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (std::size_t k = 1; k < directory_.size(); ++k) {
    if (directory_[k].id == directory_[k - 1].id) duplicate = directory_[k].id;
  }
  refuse_duplicates(duplicate, *communicator_);
}

bool ReshardPlan::relabel(std::span<const std::int64_t> ids)
{
  const int num_ranks = communicator_->num_ranks();
  std::vector<int> ranks;
  for (const std::int64_t id : ids) ranks.push_back(directory_rank(id, num_ranks));
  const auto order = sorted_order(
      ids.size(), [&](std::int64_t a, std::int64_t b) { return std::pair(ranks[a], a) < std::pair(ranks[b], b); });
  Packed<std::int64_t> outgoing;
  outgoing.first = count_by_rank(ranks, num_ranks);
  for (const std::int64_t atom : order) outgoing.records.push_back(ids[atom]);
  const auto asked = scatter(outgoing, *communicator_);

  // The directory answers, and sees at the same time whether all of its atoms are there exactly once.
  Packed<Address> answers;
  answers.first = asked.first;
  std::vector<bool> is_seen(directory_.size(), false);
  std::int64_t duplicate = -1;
  bool has_changed = asked.records.size() != directory_.size();
  for (const std::int64_t id : asked.records) {
    const auto entry =
        std::lower_bound(directory_.begin(), directory_.end(), id,
                         [](const auto& candidate, std::int64_t wanted) { return candidate.id < wanted; });
    if (entry == directory_.end() || entry->id != id) {
      has_changed = true;
      continue;
    }
    if (is_seen[entry - directory_.begin()]) duplicate = id;
    is_seen[entry - directory_.begin()] = true;
    answers.records.push_back(entry->address);
  }
  refuse_duplicates(duplicate, *communicator_);
  std::array<std::int64_t, 1> any_change{has_changed};
  communicator_->all_reduce(std::span<std::int64_t>(any_change), Reduction::max);
  if (any_change[0] != 0) return false;

  const auto returned = scatter(answers, *communicator_);
  std::vector<Address> addresses(ids.size());
  for (std::size_t k = 0; k < order.size(); ++k) addresses[order[k]] = returned.records[k];
  connect(addresses);
  return true;
}

void ReshardPlan::connect(std::span<const Address> addresses)
{
  num_atoms_ = static_cast<std::int64_t>(addresses.size());
  outward_.places = sorted_order(addresses.size(), [&](std::int64_t a, std::int64_t b) {
    return std::pair(addresses[a].rank, addresses[a].row) < std::pair(addresses[b].rank, addresses[b].row);
  });
  std::vector<int> ranks;
  Packed<std::int64_t> outgoing;
  for (const std::int64_t atom : outward_.places) {
    ranks.push_back(static_cast<int>(addresses[atom].rank));
    outgoing.records.push_back(addresses[atom].row);
  }
  outgoing.first = outward_.first = count_by_rank(ranks, communicator_->num_ranks());
  auto incoming = scatter(outgoing, *communicator_);
  inward_.first = std::move(incoming.first);
  inward_.places = std::move(incoming.records);
}

std::int64_t ReshardPlan::num_messages() const noexcept
{
  std::int64_t count = 0;
  for (int r = 0; r < communicator_->num_ranks(); ++r) {
    count += r != communicator_->rank() && outward_.first[r + 1] > outward_.first[r];
  }
  return count;
}

std::vector<std::unique_ptr<Request>> ReshardPlan::start(const Side& from, const Side& to,
                                                         std::span<const std::byte> outgoing,
                                                         std::span<std::byte> incoming, std::size_t value_size) const
{
  const int me = communicator_->rank();
  const auto part = [&](auto buffer, const Side& side, int rank) {
    const std::int64_t first = side.first[rank] - (rank > me ? side.count(me) : 0);
    return buffer.subspan(first * value_size, side.count(rank) * value_size);
  };
  std::vector<std::unique_ptr<Request>> requests;
  for (int r = 0; r < communicator_->num_ranks(); ++r) {
    if (r != me && to.count(r) > 0) requests.push_back(communicator_->receive(part(incoming, to, r), r, tag_));
  }
  for (int r = 0; r < communicator_->num_ranks(); ++r) {
    if (r != me && from.count(r) > 0) requests.push_back(communicator_->send(part(outgoing, from, r), r, tag_));
  }
  return requests;
}

}  // namespace tessera
