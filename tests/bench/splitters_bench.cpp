// SPDX-License-Identifier: MIT
// The cut by distributed search against the obvious one: gather all atoms on one rank, sort, tell the others.
// Usage: splitters_bench [ranks] [atoms]; ranks are threads, so give as many as there are cores.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tessera/comm/virtual.hpp"
#include "tessera/partition/splitters.hpp"

namespace {

using namespace tessera;

struct Held {
  std::vector<Key> keys;
  std::vector<std::int64_t> ids;
};

Held make_atoms(int rank, int num_ranks, std::int64_t num_atoms)
{
  std::mt19937_64 random(rank + 1);
  Held held;
  for (std::int64_t id = rank; id < num_atoms; id += num_ranks) {
    held.keys.push_back(random() % kKeyEnd);
    held.ids.push_back(id);
  }
  return held;
}

/// What rank 0 of the papers' codes does; returns the same splitters up to gaps between atoms.
std::vector<CurvePlace> gather_and_sort(const Held& held, Communicator& comm)
{
  std::vector<CurvePlace> mine;
  for (std::size_t n = 0; n < held.ids.size(); ++n) mine.push_back({held.keys[n], held.ids[n]});
  std::vector<std::int64_t> bytes_to(comm.num_ranks(), 0), bytes_from;
  bytes_to[0] = static_cast<std::int64_t>(mine.size() * sizeof(CurvePlace));
  const auto bytes = comm.all_to_all(std::as_bytes(std::span(mine)), bytes_to, bytes_from);
  std::vector<CurvePlace> all(bytes.size() / sizeof(CurvePlace)), first(comm.num_ranks());
  if (comm.rank() == 0) {
    std::memcpy(all.data(), bytes.data(), bytes.size());
    std::sort(all.begin(), all.end());
    const std::int64_t count = static_cast<std::int64_t>(all.size());
    for (int s = 0; s < comm.num_ranks(); ++s) {
      first[s] = all[s * (count / comm.num_ranks()) + std::min<std::int64_t>(s, count % comm.num_ranks())];
    }
  }
  const auto answer = comm.all_gather(std::as_bytes(std::span(first)));
  std::memcpy(first.data(), answer.data(), first.size() * sizeof(CurvePlace));
  first.erase(first.begin());
  return first;
}

template <typename Action>
double seconds_of(Communicator& comm, Action action)
{
  comm.barrier();
  const auto start = std::chrono::steady_clock::now();
  action();
  comm.barrier();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv)
{
  const int num_ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::int64_t num_atoms = argc > 2 ? std::atoll(argv[2]) : 2000000;
  constexpr int kRepeats = 5;
  run_virtual_ranks(num_ranks, [&](const std::shared_ptr<Communicator>& comm) {
    const Held held = make_atoms(comm->rank(), num_ranks, num_atoms);
    double search = 1e30, gather = 1e30;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      Splitters found;
      std::vector<CurvePlace> sorted;
      search =
          std::min(search, seconds_of(*comm, [&] { found = cut_by_count(held.keys, held.ids, num_ranks, *comm); }));
      gather = std::min(gather, seconds_of(*comm, [&] { sorted = gather_and_sort(held, *comm); }));
      for (int s = 0; s < num_ranks - 1; ++s) {
        // The first atom of a shard belongs to it, the place before it does not.
        if (found.shard_of(sorted[s]) != s + 1) std::printf("shard %d begins elsewhere\n", s + 1);
      }
    }
    if (comm->rank() != 0) return;
    std::printf("%d ranks, %lld atoms, best of %d: distributed search %.1f ms, gather and sort %.1f ms\n", num_ranks,
                static_cast<long long>(num_atoms), kRepeats, 1e3 * search, 1e3 * gather);
  });
}
