// SPDX-License-Identifier: MIT
#include "tessera/topology/contact_count.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include "tessera/base/error.hpp"
#include "tessera/search/cell_grid.hpp"

namespace tessera {
namespace {

constexpr std::int64_t kChunk = 4096;  // atoms that a thread takes at a time
constexpr auto kProgressInterval = std::chrono::milliseconds(200);

using Table = std::vector<std::vector<Contacts>>;  // [divisions][cutoffs]

Table empty_table(std::span<const Division> divisions, std::size_t num_cutoffs)
{
  Table table;
  for (const Division& division : divisions) {
    const std::vector<std::int64_t> zeros(division.num_shards, 0);
    table.emplace_back(num_cutoffs,
                       Contacts{zeros, zeros, zeros, zeros, std::vector<std::vector<int>>(division.num_shards)});
  }
  return table;
}

void insert_sorted(std::vector<int>& values, int value)
{
  const auto place = std::lower_bound(values.begin(), values.end(), value);
  if (place == values.end() || *place != value) values.insert(place, value);
}

void add(std::vector<std::int64_t>& total, const std::vector<std::int64_t>& part)
{
  for (std::size_t k = 0; k < total.size(); ++k) total[k] += part[k];
}

/// The atoms in cells, with their shards in the same order; read by all threads.
struct SortedAtoms {
  SortedAtoms(std::span<const Vec3> positions, const Box& box, std::span<const Division> divisions_,
              std::span<const double> cutoffs_)
      : grid(positions, box, cutoffs_.back()), divisions(divisions_), cutoffs(cutoffs_)
  {
    shards.reserve(positions.size() * divisions.size());
    for (const std::int64_t row : grid.rows()) {
      for (const Division& division : divisions) shards.push_back(division.shard_of[row]);
    }
  }

  CellGrid grid;
  std::span<const Division> divisions;
  std::span<const double> cutoffs;
  std::vector<std::uint16_t> shards;  // [atoms by cell][divisions]
};

/// One thread's counts.
class Counter {
 public:
  explicit Counter(const SortedAtoms& atoms)
      : atoms_(atoms),
        num_divisions_(atoms.divisions.size()),
        num_cutoffs_(atoms.cutoffs.size()),
        table(empty_table(atoms.divisions, num_cutoffs_)),
        num_edges_(num_cutoffs_),
        num_local_(num_divisions_ * num_cutoffs_),
        readers_(num_divisions_)
  {
    for (const double cutoff : atoms.cutoffs) cutoffs_sq_.push_back(cutoff * cutoff);
    for (const Division& division : atoms.divisions) nearest_sq_.emplace_back(division.num_shards, kUnseen);
  }

  /// Counts everything that concerns the atom at this place of the cell order.
  void count_atom(std::int64_t place)
  {
    const std::int64_t cell = atoms_.grid.cell_of(atoms_.grid.rows()[place]);
    if (cell != cell_) {
      atoms_.grid.neighborhoods_of(cell, neighborhoods_);
      cell_ = cell;
    }
    std::fill(num_edges_.begin(), num_edges_.end(), 0);
    std::fill(num_local_.begin(), num_local_.end(), 0);
    const auto wrapped = atoms_.grid.wrapped_positions();
    const double widest_sq = cutoffs_sq_.back();
    for (const auto& hood : neighborhoods_) {
      const Vec3 center = wrapped[place] - hood.translation;
      const bool is_self_cell = hood.image == Shift{};
      for (std::int64_t other = hood.first; other < hood.last; ++other) {
        const Vec3 v = center - wrapped[other];
        const double distance_sq = dot(v, v);
        if (distance_sq > widest_sq || (other == place && is_self_cell)) continue;
        count_pair(place, other, distance_sq);
      }
    }
    settle(place);
  }

 private:
  static constexpr double kUnseen = std::numeric_limits<double>::infinity();

  void count_pair(std::int64_t place, std::int64_t other, double distance_sq)
  {
    std::size_t list = 0;
    while (distance_sq > cutoffs_sq_[list]) ++list;
    ++num_edges_[list];
    const std::uint16_t* mine = &atoms_.shards[place * num_divisions_];
    const std::uint16_t* theirs = &atoms_.shards[other * num_divisions_];
    for (std::size_t d = 0; d < num_divisions_; ++d) {
      if (mine[d] == theirs[d]) {
        ++num_local_[d * num_cutoffs_ + list];
        continue;
      }
      double& nearest = nearest_sq_[d][theirs[d]];
      if (nearest == kUnseen) readers_[d].push_back(theirs[d]);
      nearest = std::min(nearest, distance_sq);
    }
  }

  /// Enters the atom's counts: as a receiver in its shard, as a sender in the shards that read it.
  void settle(std::int64_t place)
  {
    for (std::size_t d = 0; d < num_divisions_; ++d) {
      const int shard = atoms_.shards[place * num_divisions_ + d];
      std::int64_t edges = 0, local = 0;
      for (std::size_t list = 0; list < num_cutoffs_; ++list) {  // a pair counts at every cutoff from its own on
        Contacts& contacts = table[d][list];
        contacts.edges[shard] += edges += num_edges_[list];
        contacts.local_edges[shard] += local += num_local_[d * num_cutoffs_ + list];
        for (const int reader : readers_[d]) {
          if (nearest_sq_[d][reader] > cutoffs_sq_[list]) continue;
          ++contacts.halo_rows[reader];
          ++contacts.sent_rows[shard];
          insert_sorted(contacts.peers[reader], shard);
        }
      }
      for (const int reader : readers_[d]) nearest_sq_[d][reader] = kUnseen;
      readers_[d].clear();
    }
  }

  const SortedAtoms& atoms_;
  std::size_t num_divisions_, num_cutoffs_;

 public:
  Table table;

 private:
  std::int64_t cell_ = -1;
  std::vector<CellGrid::Neighborhood> neighborhoods_;  // of cell_
  std::vector<double> cutoffs_sq_;
  std::vector<std::int64_t> num_edges_;          // [cutoffs] of one atom, by the smallest cutoff that holds the pair
  std::vector<std::int64_t> num_local_;          // [divisions, cutoffs]
  std::vector<std::vector<double>> nearest_sq_;  // [divisions][shards] from one atom
  std::vector<std::vector<int>> readers_;        // [divisions] shards that are not unseen
};

/// Lets `work(begin, end)` loose on all chunks, one functor a thread, and reports progress meanwhile.
void work_in_chunks(std::int64_t count, std::vector<std::function<void(std::int64_t, std::int64_t)>> workers,
                    const Progress& progress)
{
  std::atomic<std::int64_t> next = 0, num_finished = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::exception_ptr failure;
  std::size_t num_running = workers.size();
  std::vector<std::thread> threads;
  for (auto& work : workers) {
    threads.emplace_back([&] {
      try {
        for (std::int64_t begin; (begin = next.fetch_add(kChunk)) < count;) {
          work(begin, std::min(begin + kChunk, count));
          num_finished += std::min(kChunk, count - begin);
        }
      } catch (...) {
        const std::scoped_lock lock(mutex);
        failure = std::current_exception();
        next = count;
      }
      const std::scoped_lock lock(mutex);
      --num_running;
      changed.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, kProgressInterval, [&] { return num_running == 0; })) {
    if (failure || !progress) continue;  // the threads finish their chunks
    lock.unlock();
    std::exception_ptr refusal;
    try {
      progress(static_cast<double>(num_finished) / static_cast<double>(count));
    } catch (...) {  // the user has had enough
      refusal = std::current_exception();
      next = count;
    }
    lock.lock();
    if (refusal) failure = refusal;
  }
  lock.unlock();
  for (auto& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  if (progress) progress(1.0);
}

}  // namespace

std::vector<std::vector<Contacts>> count_contacts(std::span<const Vec3> positions, const Box& box,
                                                  std::span<const Division> divisions, std::span<const double> cutoffs,
                                                  int num_threads, const Progress& progress)
{
  TESSERA_REQUIRE(!cutoffs.empty() && cutoffs.front() > 0 && std::is_sorted(cutoffs.begin(), cutoffs.end()),
                  "expected at least one cutoff, all above 0 Å and ascending");
  for (const Division& division : divisions) {
    TESSERA_REQUIRE(division.shard_of.size() == positions.size(), "a division of {} atoms, expected {}",
                    division.shard_of.size(), positions.size());
  }
  const SortedAtoms atoms(positions, box, divisions, cutoffs);
  std::vector<Counter> counters(std::max(1, num_threads), Counter(atoms));
  std::vector<std::function<void(std::int64_t, std::int64_t)>> workers;
  for (Counter& counter : counters) {
    workers.emplace_back([&counter](std::int64_t begin, std::int64_t end) {
      for (std::int64_t place = begin; place < end; ++place) counter.count_atom(place);
    });
  }
  work_in_chunks(static_cast<std::int64_t>(positions.size()), std::move(workers), progress);
  Table total = empty_table(divisions, cutoffs.size());
  for (const Counter& counter : counters) {
    for (std::size_t d = 0; d < divisions.size(); ++d) {
      for (std::size_t list = 0; list < cutoffs.size(); ++list) {
        const Contacts& part = counter.table[d][list];
        Contacts& sum = total[d][list];
        add(sum.edges, part.edges);
        add(sum.local_edges, part.local_edges);
        add(sum.halo_rows, part.halo_rows);
        add(sum.sent_rows, part.sent_rows);
        for (int shard = 0; shard < divisions[d].num_shards; ++shard) {
          for (const int peer : part.peers[shard]) insert_sorted(sum.peers[shard], peer);
        }
      }
    }
  }
  return total;
}

}  // namespace tessera
