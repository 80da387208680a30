// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "hard_systems.hpp"
#include "tessera/partition/curve.hpp"
#include "tessera/partition/splitters.hpp"

namespace tessera::testing {

/// A system cut into shards; every rank makes the same, from all atoms, so that tests of the search need no reshard.
struct ShardedSystem {
  Curve curve;
  Splitters splitters;
  std::vector<std::vector<std::int64_t>> atoms;  ///< [num_shards] atoms of each shard, in curve order

  [[nodiscard]] std::vector<Vec3> positions_of(int shard, const std::vector<Vec3>& all) const
  {
    std::vector<Vec3> positions;
    for (const auto atom : atoms[shard]) positions.push_back(all[atom]);
    return positions;
  }
};

inline ShardedSystem cut_system(const HardSystem& system, int num_shards, CurveKind kind)
{
  const auto comm = make_serial_communicator();
  const CurveExtent extent = agree_on_extent(system.positions, system.box, *comm);
  ShardedSystem sharded{Curve(kind, system.box, extent), {}, {}};
  const auto keys = sharded.curve.keys_of(system.positions);
  std::vector<std::int64_t> ids(keys.size());
  std::iota(ids.begin(), ids.end(), 0);
  sharded.splitters = cut_by_count(keys, ids, num_shards, *comm);
  std::vector<CurvePlace> places;
  for (const auto id : ids) places.push_back({keys[id], id});
  std::sort(places.begin(), places.end());
  sharded.atoms.resize(num_shards);
  for (const CurvePlace& place : places) sharded.atoms[sharded.splitters.shard_of(place)].push_back(place.id);
  return sharded;
}

}  // namespace tessera::testing
