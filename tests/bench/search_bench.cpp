// SPDX-License-Identifier: MIT
// Time of the exact pair search an atom, at sizes side by side: it should not grow with the number of atoms.
// Usage: search_bench [repeats] [atoms ...]; the sizes take turns, so that a busy machine slows all of them.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tessera/partition/curve.hpp"
#include "tessera/search/cell_search.hpp"

namespace {

using namespace tessera;

constexpr double kDensity = 0.1;  // atoms/Å^3, water
constexpr double kReach = 7.0;    // Å, cutoff 6 and skin 1
constexpr double kBond = 0.97;    // Å

struct Water {
  Box box;
  std::vector<Vec3> positions;  // along the curve, as the rows of a shard stand
  std::vector<double> seconds;
  std::int64_t num_edges = 0;
};

/// Molecules on a jittered grid in a periodic cube, each hydrogen in a random direction.
Water make_water(std::int64_t num_atoms)
{
  const auto per_axis = static_cast<std::int64_t>(std::round(std::cbrt(static_cast<double>(num_atoms) / 3)));
  const double spacing = std::cbrt(3 / kDensity), edge = spacing * static_cast<double>(per_axis);
  Water water{Box({Vec3{edge, 0, 0}, Vec3{0, edge, 0}, Vec3{0, 0, edge}}, {0, 0, 0}, {true, true, true}), {}, {}};
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<Vec3> scattered;
  for (std::int64_t n = 0; n < per_axis * per_axis * per_axis; ++n) {
    const auto at = [&](std::int64_t place) { return spacing * (static_cast<double>(place) + 0.1 * normal(random)); };
    const Vec3 oxygen{at(n % per_axis), at(n / per_axis % per_axis), at(n / per_axis / per_axis)};
    scattered.push_back(oxygen);
    for (int hydrogen = 0; hydrogen < 2; ++hydrogen) {
      const Vec3 direction{normal(random), normal(random), normal(random)};
      scattered.push_back(oxygen + (kBond / std::sqrt(dot(direction, direction))) * direction);
    }
  }
  const auto keys = Curve(CurveKind::hilbert, water.box, {}).keys_of(scattered);
  std::vector<std::size_t> order(scattered.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  for (const std::size_t n : order) water.positions.push_back(scattered[n]);
  return water;
}

void time_search(Water& water)
{
  const auto start = std::chrono::steady_clock::now();
  const auto list = cell_search(water.positions, static_cast<std::int64_t>(water.positions.size()), water.box, kReach);
  water.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  water.num_edges = list.num_edges();
}

double median(std::vector<double> values)
{
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv)
{
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 7;
  std::vector<Water> waters;
  for (int k = 2; k < argc; ++k) waters.push_back(make_water(std::atoll(argv[k])));
  if (waters.empty()) waters = {make_water(5000), make_water(20000), make_water(80000)};
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (Water& water : waters) time_search(water);
  }
  const auto per_atom = [](const Water& water) {
    return median(water.seconds) / static_cast<double>(water.positions.size());
  };
  std::printf("reach %.1f A, median of %d\n%8s %12s %12s %10s %8s\n", kReach, repeats, "atoms", "edges/atom", "us/atom",
              "ns/edge", "ratio");
  for (const Water& water : waters) {
    const auto num_atoms = static_cast<double>(water.positions.size());
    std::printf("%8zu %12.1f %12.2f %10.2f %8.2f\n", water.positions.size(),
                static_cast<double>(water.num_edges) / num_atoms, 1e6 * per_atom(water),
                1e9 * median(water.seconds) / static_cast<double>(water.num_edges),
                per_atom(water) / per_atom(waters.front()));
  }
}
