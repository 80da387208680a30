// SPDX-License-Identifier: MIT
// Time of a rebuild's lists: found on the host and uploaded, against found on a device (each GPU, or the host's loops
// if there is none). Usage: device_search_bench [repeats] [atoms ...]
//
// Two ranks are measured for each number of atoms: one alone in a periodic box, and one of many, which has the atoms of
// a cube and those around it as candidates. Water's density, cutoffs 5 and 8 Å, skin 1 Å.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tessera/device/gpu.hpp"
#include "tessera/partition/curve.hpp"
#include "tessera/plan/build_halo_plan.hpp"
#include "tessera/search/cell_search.hpp"
#include "tessera/topology/build_device_topology.hpp"
#include "tessera/topology/topology.hpp"

namespace {

using namespace tessera;

constexpr double kDensity = 0.1;           // atoms/Å^3
constexpr double kSkin = 1;                // Å
constexpr double kJitter = 0.1;            // of the lattice's spacing: no two atoms close, none exactly at a cutoff
const std::vector<double> kCutoffs{5, 8};  // Å

struct Rank {
  Box box;
  std::vector<Vec3> positions;  // along the curve, as the rows of a shard stand
  Candidates candidates;
};

void sort_along_curve(std::vector<Vec3>& positions, const Box& box)
{
  const auto keys = Curve(CurveKind::hilbert, box, {}).keys_of(positions);
  std::vector<std::size_t> order(positions.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  std::vector<Vec3> sorted;
  for (const std::size_t n : order) sorted.push_back(positions[n]);
  positions = std::move(sorted);
}

/// A cube of about `num_atoms` on a jittered lattice; if it is one of many, with what stands around it. This rank is
/// its own peer then: how many rows travel is as among many ranks, from where is not.
Rank make_rank(std::int64_t num_atoms, bool is_one_of_many)
{
  const double spacing = std::cbrt(1 / kDensity);
  const auto per_axis = static_cast<std::int64_t>(std::round(std::cbrt(static_cast<double>(num_atoms))));
  const auto around =
      is_one_of_many ? static_cast<std::int64_t>(std::ceil((kCutoffs.back() + kSkin) / spacing)) : std::int64_t{0};
  const double edge = spacing * static_cast<double>(per_axis + 4 * around);
  Rank rank{Box({Vec3{edge, 0, 0}, Vec3{0, edge, 0}, Vec3{0, 0, edge}}, {0, 0, 0}, {true, true, true}), {}, {}};
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  const auto at = [&](std::int64_t n) {
    return spacing * (static_cast<double>(n + 2 * around) + kJitter * normal(random));
  };
  for (std::int64_t x = -around; x < per_axis + around; ++x) {
    for (std::int64_t y = -around; y < per_axis + around; ++y) {
      for (std::int64_t z = -around; z < per_axis + around; ++z) {
        const bool is_owned = std::min({x, y, z}) >= 0 && std::max({x, y, z}) < per_axis;
        (is_owned ? rank.positions : rank.candidates.positions).push_back({at(x), at(y), at(z)});
      }
    }
  }
  sort_along_curve(rank.positions, rank.box);
  sort_along_curve(rank.candidates.positions, rank.box);
  rank.candidates.num_peers = is_one_of_many ? 1 : 0;
  rank.candidates.rank.assign(rank.candidates.positions.size(), 0);
  for (std::size_t c = 0; c < rank.candidates.positions.size(); ++c) {
    rank.candidates.row.push_back(static_cast<std::int64_t>(c % rank.positions.size()));
  }
  return rank;
}

/// Median milliseconds; the first run, which allocates, does not count.
double median_ms(int repeats, const std::function<void()>& work)
{
  std::vector<double> times;
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  times.erase(times.begin());
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Times {
  double search = 0, lists = 0, plans = 0;
};

void print_row(const Rank& rank, const DeviceTopology& topology, const std::string& where, const Times& times)
{
  std::printf("%8zu %8zu %10lld %10lld  %-26s %9.2f %9.2f %9.2f %9.2f\n", rank.positions.size(),
              rank.candidates.positions.size(), static_cast<long long>(topology.lists[0].num_edges),
              static_cast<long long>(topology.lists[1].num_edges), where.c_str(), times.search, times.lists,
              times.plans, times.search + times.lists + times.plans);
}

/// Time of the plans alone, from the rows that this rank has asked itself for.
double time_plans(int repeats, const DeviceTopology& topology, Communicator& communicator)
{
  return median_ms(repeats, [&] {
    for (const DeviceList& list : topology.lists) {
      std::vector<NeededRows> needed;
      for (const HaloPeer& peer : list.plan->peers) needed.push_back({peer.rank, peer.send_rows});
      (void)build_halo_plan(1, topology.num_owned, needed, communicator);
    }
  });
}

std::vector<Vec3> extended_positions(const Rank& rank)
{
  std::vector<Vec3> extended = rank.positions;
  extended.insert(extended.end(), rank.candidates.positions.begin(), rank.candidates.positions.end());
  return extended;
}

/// Search, lists and plans on the host; "lists" includes the upload.
void measure_host(int repeats, const Rank& rank, StreamRef stream, Communicator& communicator)
{
  const auto extended = extended_positions(rank);
  const double reach = kCutoffs.back() + kSkin;
  DeviceTopology topology(stream.device, kCutoffs.size());
  Times times;
  times.search = median_ms(
      repeats, [&] { (void)cell_search(extended, static_cast<std::int64_t>(rank.positions.size()), rank.box, reach); });
  const double all = median_ms(repeats, [&] {
    topology.upload(
        build_topology(rank.positions, rank.candidates, rank.box, kCutoffs, kSkin, 1, cell_search, communicator),
        stream);
  });
  times.plans = time_plans(repeats, topology, communicator);
  times.lists = all - times.search - times.plans;
  print_row(rank, topology, "host and upload", times);
}

/// The same on a device; "lists" includes the upload of positions, and is what the plans do not hide.
void measure_device(int repeats, const Rank& rank, StreamRef stream, const std::string& name,
                    Communicator& communicator)
{
  DeviceTopologyBuilder builder(stream);
  DeviceTopology topology(stream.device, kCutoffs.size());
  Times times;
  const double all = median_ms(repeats, [&] {
    builder.build(rank.positions, rank.candidates, rank.box, kCutoffs, kSkin, 1, communicator, topology);
    synchronize(stream);
  });
  DeviceArray<Vec3> positions(stream.device);
  positions.assign(extended_positions(rank), stream);
  DeviceSearch search(stream);
  DeviceList list(stream.device);
  times.search = median_ms(repeats, [&] {
    (void)search.find(positions.data(), positions.count(), topology.num_owned, rank.box, kCutoffs.back() + kSkin,
                      {list.receiver, list.sender, list.shift, list.first_of_receiver});
    synchronize(stream);
  });
  times.plans = time_plans(repeats, topology, communicator);
  times.lists = all - times.search - times.plans;
  print_row(rank, topology, name, times);
}

}  // namespace

int main(int argc, char** argv)
{
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 7;
  std::vector<std::int64_t> sizes;
  for (int k = 2; k < argc; ++k) sizes.push_back(std::atoll(argv[k]));
  if (sizes.empty()) sizes = {20'000, 40'000, 60'000};
  const auto communicator = make_serial_communicator();
  std::printf("cutoffs 5 and 8 A, skin 1 A; medians of %d, ms\n%8s %8s %10s %10s  %-26s %9s %9s %9s %9s\n", repeats,
              "atoms", "others", "edges 5+1", "edges 8+1", "where", "search", "lists", "plans", "all");
  for (const std::int64_t size : sizes) {
    for (const bool is_one_of_many : {false, true}) {
      const Rank rank = make_rank(size, is_one_of_many);
      const StreamRef first{num_gpus() > 0 ? Device{0} : Device{}, nullptr};
      measure_host(repeats, rank, first, *communicator);
      if (num_gpus() == 0) measure_device(repeats, rank, first, "host, the device's loops", *communicator);
      for (int gpu = 0; gpu < num_gpus(); ++gpu) {
        const CurrentDevice scope(Device{gpu});
        const Stream stream(Device{gpu});
        measure_device(repeats, rank, stream, "GPU " + std::to_string(gpu) + ", " + gpu_name(gpu), *communicator);
      }
    }
  }
}
