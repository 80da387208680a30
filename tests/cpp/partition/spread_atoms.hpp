// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/partition/splitters.hpp"

namespace tessera::testing {

/// Atoms as one rank holds them.
struct HeldAtoms {
  std::vector<Key> keys;
  std::vector<std::int64_t> ids;

  void add(Key key, std::int64_t id)
  {
    keys.push_back(key);
    ids.push_back(id);
  }
};

/// A system to cut: keys by id 1, 2, ...
struct KeyedSystem {
  const char* name;
  std::vector<Key> keys;
};

inline std::vector<Key> random_keys(std::int64_t count, Key end, unsigned seed)
{
  std::mt19937_64 random(seed);
  std::vector<Key> keys;
  for (std::int64_t n = 0; n < count; ++n) keys.push_back(random() % end);
  return keys;
}

inline std::vector<KeyedSystem> keyed_systems()
{
  std::vector<Key> extremes(20, 0);
  extremes.resize(41, kKeyEnd - 1);
  return {{"no_atoms", {}},
          {"one_atom", {kKeyEnd - 1}},
          {"five_atoms", random_keys(5, kKeyEnd, 1)},
          {"a_thousand_atoms", random_keys(1000, kKeyEnd, 2)},
          {"many_equal_keys", random_keys(500, 7, 3)},
          {"all_atoms_in_one_cell", std::vector<Key>(103, 12345)},
          {"two_ends_of_the_curve", extremes},
          {"one_corner", random_keys(300, 4096, 4)}};
}

/// The ways in which a caller may hold the atoms.
enum class Spread { random, reversed, first_rank_only, last_rank_only };
constexpr Spread kSpreads[] = {Spread::random, Spread::reversed, Spread::first_rank_only, Spread::last_rank_only};

inline HeldAtoms spread(const KeyedSystem& system, Spread how, int rank, int num_ranks, unsigned seed = 9)
{
  std::mt19937_64 random(seed);
  HeldAtoms held;
  const auto count = static_cast<std::int64_t>(system.keys.size());
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t owner = 0;
    switch (how) {
      case Spread::random:
        owner = static_cast<std::int64_t>(random() % num_ranks);
        break;
      case Spread::reversed:
        owner = num_ranks - 1 - n * num_ranks / count;
        break;
      case Spread::first_rank_only:
        owner = 0;
        break;
      case Spread::last_rank_only:
        owner = num_ranks - 1;
        break;
    }
    if (owner == rank) held.add(system.keys[n], n + 1);
  }
  return held;
}

}  // namespace tessera::testing
