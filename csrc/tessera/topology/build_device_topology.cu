// SPDX-License-Identifier: MIT
#include "tessera/topology/build_device_topology.hpp"

#include <algorithm>
#include <bit>
#include <memory>

#include "tessera/base/error.hpp"
#include "tessera/plan/build_halo_plan.hpp"
#include "tessera/search/device_vector.cuh"

namespace tessera {
namespace {

/// Edges of the widest list whose senders are still numbered by candidate.
struct WideEdges {
  std::int64_t num_edges = 0, num_owned = 0;
  const std::int32_t* receiver = nullptr;  // [num_edges]
  const std::int32_t* sender = nullptr;    // [num_edges]
  const std::int32_t* shift = nullptr;     // [num_edges, 3]
};

WideEdges wide_edges_of(const DeviceTopology& topology)
{
  const DeviceList& wide = topology.widest();
  return {wide.num_edges, topology.num_owned, wide.receiver.data(), wide.sender.data(),
          kernel::components(wide.shift.data())};
}

/// used [candidates] becomes 1 where an edge of the widest list reads one. Several edges may read the same: all of them
/// write the same 1.
void mark_used(StreamRef stream, const WideEdges& wide, std::uint8_t* used)
{
  parallel::for_each(
      stream, wide.num_edges, TESSERA_LAMBDA(std::int64_t e) {
        if (wide.sender[e] >= wide.num_owned) used[wide.sender[e] - wide.num_owned] = 1;
      });
}

/// The same of the edges within reach; is_kept [num_edges + 1] says which these are, with a 0 behind.
void mark_narrow(StreamRef stream, const WideEdges& wide, const kernel::Lattice& box, const double* positions,
                 double reach, std::uint8_t* is_kept, std::uint8_t* used)
{
  const double reach_sq = reach * reach;
  parallel::for_each(
      stream, wide.num_edges + 1, TESSERA_LAMBDA(std::int64_t e) {
        if (e == wide.num_edges) {
          is_kept[e] = 0;
          return;
        }
        const double distance_sq =
            kernel::edge_length_sq(box, kernel::vector_at(positions, wide.receiver[e]),
                                   kernel::vector_at(positions, wide.sender[e]), kernel::image_at(wide.shift, e));
        const bool is_within = !(distance_sq > reach_sq);
        is_kept[e] = is_within ? 1 : 0;
        if (is_within && wide.sender[e] >= wide.num_owned) used[wide.sender[e] - wide.num_owned] = 1;
      });
}

/// Halo rows of the candidates, in the widest list and in one's own.
struct HaloRows {
  const std::int32_t* wide = nullptr;  // [candidates]
  const std::int32_t* own = nullptr;   // [candidates]
};

struct NarrowEdges {
  std::int32_t *receiver = nullptr, *sender = nullptr, *own_sender = nullptr, *shift = nullptr;
};

/// Copies the edges that the scan `place` [num_edges + 1] counts.
void compact(StreamRef stream, const WideEdges& wide, const std::int32_t* place, const HaloRows& halo,
             const NarrowEdges& out)
{
  parallel::for_each(
      stream, wide.num_edges, TESSERA_LAMBDA(std::int64_t e) {
        const std::int64_t k = place[e];
        if (place[e + 1] == k) return;
        const std::int32_t j = wide.sender[e];
        const auto num_owned = static_cast<std::int32_t>(wide.num_owned);
        out.receiver[k] = wide.receiver[e];
        out.sender[k] = j < num_owned ? j : num_owned + halo.wide[j - num_owned];
        out.own_sender[k] = j < num_owned ? j : num_owned + halo.own[j - num_owned];
        for (int a = 0; a < 3; ++a) out.shift[3 * k + a] = wide.shift[3 * e + a];
      });
}

/// Numbers the widest list's senders by halo row.
void renumber(StreamRef stream, std::int64_t num_edges, std::int64_t num_owned, const std::int32_t* halo_row,
              std::int32_t* sender, std::int32_t* own_sender)
{
  parallel::for_each(
      stream, num_edges, TESSERA_LAMBDA(std::int64_t e) {
        const std::int32_t j = sender[e];
        if (j >= num_owned) sender[e] = static_cast<std::int32_t>(num_owned) + halo_row[j - num_owned];
        own_sender[e] = sender[e];
      });
}

/// wide_row [num_halo] of the candidates in use.
void write_wide_rows(StreamRef stream, std::int64_t num_candidates, std::int64_t num_owned, const std::uint8_t* used,
                     const HaloRows& halo, std::int32_t* wide_row)
{
  parallel::for_each(
      stream, num_candidates, TESSERA_LAMBDA(std::int64_t c) {
        if (used[c] != 0) wide_row[halo.own[c]] = static_cast<std::int32_t>(num_owned) + halo.wide[c];
      });
}

void narrow_ranges(StreamRef stream, std::int64_t num_owned, const std::int32_t* wide_first, const std::int32_t* place,
                   std::int32_t* first)
{
  parallel::for_each(stream, num_owned + 1, TESSERA_LAMBDA(std::int64_t i) { first[i] = place[wide_first[i]]; });
}

void count_up(StreamRef stream, std::int64_t count, std::int32_t* number)
{
  parallel::for_each(stream, count, TESSERA_LAMBDA(std::int64_t k) { number[k] = static_cast<std::int32_t>(k); });
}

void map_rows(StreamRef stream, std::int64_t num_rows, std::uint32_t* mapped, std::int32_t* row)
{
  parallel::for_each(
      stream, num_rows, TESSERA_LAMBDA(std::int64_t i) {
        mapped[i] = static_cast<std::uint32_t>(i) * ScatteredRows::kFactor;
        row[i] = static_cast<std::int32_t>(i);
      });
}

/// degree [num_rows + 1] of the receivers in `order`, with a 0 behind for the scan.
void write_degrees(StreamRef stream, std::int64_t num_rows, const std::int32_t* order, const std::int32_t* first,
                   std::int32_t* degree)
{
  parallel::for_each(
      stream, num_rows + 1,
      TESSERA_LAMBDA(std::int64_t k) { degree[k] = k == num_rows ? 0 : first[order[k] + 1] - first[order[k]]; });
}

/// first_place [num_rows]: `base` of each receiver.
void scatter_base(StreamRef stream, std::int64_t num_rows, const std::int32_t* order, const std::int32_t* base,
                  std::int32_t* first_place)
{
  parallel::for_each(stream, num_rows, TESSERA_LAMBDA(std::int64_t k) { first_place[order[k]] = base[k]; });
}

/// number and sender of the edges in the order of their receivers.
void number_by_receiver(StreamRef stream, std::int64_t num_edges, const std::int32_t* receiver,
                        const std::int32_t* first, const std::int32_t* first_place, const std::int32_t* sender,
                        std::int32_t* number, std::uint32_t* sender_of_number)
{
  parallel::for_each(
      stream, num_edges, TESSERA_LAMBDA(std::int64_t e) {
        const std::int64_t place = first_place[receiver[e]] + (e - first[receiver[e]]);
        number[place] = static_cast<std::int32_t>(e);
        sender_of_number[place] = static_cast<std::uint32_t>(sender[e]);
      });
}

/// first [num_rows + 1]: how many of the ascending `sender` [num_edges] are below each row.
void write_firsts(StreamRef stream, std::int64_t num_rows, std::int64_t num_edges, const std::uint32_t* sender,
                  std::int32_t* first)
{
  parallel::for_each(
      stream, num_rows + 1, TESSERA_LAMBDA(std::int64_t row) {
        std::int64_t low = 0, high = num_edges;
        while (low < high) {
          const std::int64_t middle = low + (high - low) / 2;
          if (sender[middle] < row) {
            low = middle + 1;
          } else {
            high = middle;
          }
        }
        first[row] = static_cast<std::int32_t>(low);
      });
}

/// Asks the owners for the candidates in use, which stand by (owner, row there).
std::shared_ptr<const HaloPlan> plan_for(std::span<const std::uint8_t> used, const Candidates& candidates,
                                         std::int64_t epoch, std::int64_t num_owned, Communicator& communicator)
{
  std::vector<NeededRows> needed;
  for (std::size_t c = 0; c < used.size(); ++c) {
    if (used[c] == 0) continue;
    if (needed.empty() || needed.back().rank != candidates.rank[c]) needed.push_back({candidates.rank[c], {}});
    needed.back().rows.push_back(candidates.row[c]);
  }
  return std::make_shared<const HaloPlan>(build_halo_plan(epoch, num_owned, needed, communicator));
}

}  // namespace

DeviceTopologyBuilder::DeviceTopologyBuilder(StreamRef stream, SenderOrder order)
    : stream_(stream),
      order_(order),
      search_(stream, order),
      staged_(stream.device, MemoryKind::pinned),
      extended_(stream.device),
      is_kept_(stream.device),
      used_(stream.device),
      used_here_(stream.device, MemoryKind::pinned),
      edges_here_(stream.device, MemoryKind::pinned),
      mapped_row_(stream.device),
      row_of_place_(stream.device),
      receiver_in_order_(stream.device),
      degree_(stream.device),
      base_(stream.device),
      first_place_(stream.device),
      edge_number_(stream.device),
      sender_of_number_(stream.device),
      sorted_sender_(stream.device),
      scratch_(stream.device)
{
}

/// Owned positions, then those of the candidates, on the device.
const Vec3* DeviceTopologyBuilder::upload(std::span<const Vec3> positions, std::span<const Vec3> candidates)
{
  const auto count = static_cast<std::int64_t>(positions.size() + candidates.size());
  Vec3* staged = staged_.resize(count);
  std::copy(candidates.begin(), candidates.end(), std::copy(positions.begin(), positions.end(), staged));
  copy_bytes(extended_.resize(count), staged, static_cast<std::size_t>(count) * sizeof(Vec3), stream_);
  return extended_.data();
}

/// Which candidates and which of the widest list's edges belong to each list; waits for the stream.
DeviceTopologyBuilder::Findings DeviceTopologyBuilder::mark(const Box& box, std::span<const double> cutoffs,
                                                            double skin, std::int64_t num_candidates,
                                                            const DeviceTopology& into)
{
  const std::size_t num_lists = cutoffs.size();
  const WideEdges wide = wide_edges_of(into);
  const std::int64_t num_flags = static_cast<std::int64_t>(num_lists) * num_candidates;
  std::uint8_t* used = used_.resize(num_flags);
  clear_bytes(used, static_cast<std::size_t>(num_flags), stream_);
  std::int32_t* edges_here = edges_here_.resize(static_cast<std::int64_t>(num_lists));
  for (std::size_t l = 0; l < num_lists; ++l, used += num_candidates) {
    std::int32_t* halo_row = works_[l].halo_row.resize(num_candidates);
    if (l + 1 == num_lists) {
      mark_used(stream_, wide, used);
    } else {
      std::int32_t* place = works_[l].place.resize(wide.num_edges + 1);
      mark_narrow(stream_, wide, kernel::lattice_of(box), kernel::components(extended_.data()), cutoffs[l] + skin,
                  is_kept_.resize(wide.num_edges + 1), used);
      parallel::exclusive_scan(stream_, is_kept_.data(), place, wide.num_edges + 1, scratch_);
      copy_bytes(edges_here + l, place + wide.num_edges, sizeof(std::int32_t), stream_);
    }
    parallel::exclusive_scan(stream_, used, halo_row, num_candidates, scratch_);
  }
  std::uint8_t* used_here = used_here_.resize(num_flags);
  copy_bytes(used_here, used_.data(), static_cast<std::size_t>(num_flags), stream_);
  synchronize(stream_);
  Findings found;
  for (std::size_t l = 0; l < num_lists; ++l) {
    found.used.emplace_back(used_here + l * num_candidates, static_cast<std::size_t>(num_candidates));
    found.num_edges.push_back(l + 1 == num_lists ? wide.num_edges : edges_here[l]);
  }
  return found;
}

/// A list's edges by its own halo rows; the widest list comes last, because the others are cut out of it.
void DeviceTopologyBuilder::fill(DeviceTopology& into, std::size_t l, std::span<const std::uint8_t> used_here)
{
  DeviceList& list = into.lists[l];
  const auto num_candidates = static_cast<std::int64_t>(used_here.size());
  const std::int64_t num_halo = std::count(used_here.begin(), used_here.end(), 1);
  const HaloRows halo{works_[into.lists.size() - 1].halo_row.data(), works_[l].halo_row.data()};
  std::int32_t* own_sender = list.own_sender.resize(list.num_edges);
  if (&list == &into.lists.back()) {
    renumber(stream_, list.num_edges, into.num_owned, halo.wide, list.sender.data(), own_sender);
  } else {
    const NarrowEdges edges{list.receiver.resize(list.num_edges), list.sender.resize(list.num_edges), own_sender,
                            kernel::components(list.shift.resize(list.num_edges))};
    compact(stream_, wide_edges_of(into), works_[l].place.data(), halo, edges);
    narrow_ranges(stream_, into.num_owned, into.widest().first_of_receiver.data(), works_[l].place.data(),
                  list.first_of_receiver.resize(into.num_owned + 1));
  }
  write_wide_rows(stream_, num_candidates, into.num_owned, used_.data() + l * num_candidates, halo,
                  list.wide_row.resize(num_halo));
  index(list, into.num_owned, into.num_owned + num_halo);
}

/// Numbers a list's edges in the order in which those of one sender are to stand.
void DeviceTopologyBuilder::number_edges(const DeviceList& list, std::int64_t num_owned)
{
  std::int32_t* number = edge_number_.resize(list.num_edges);
  if (order_ == SenderOrder::ascending) {
    count_up(stream_, list.num_edges, number);
    return;
  }
  std::int32_t* row = first_place_.resize(num_owned);  // first the rows, then where each begins
  map_rows(stream_, num_owned, mapped_row_.resize(num_owned), row);
  parallel::sort_by_key(stream_, mapped_row_.data(), row_of_place_.resize(num_owned), row,
                        receiver_in_order_.resize(num_owned), num_owned, 32, scratch_);
  write_degrees(stream_, num_owned, receiver_in_order_.data(), list.first_of_receiver.data(),
                degree_.resize(num_owned + 1));
  parallel::exclusive_scan(stream_, degree_.data(), base_.resize(num_owned + 1), num_owned + 1, scratch_);
  scatter_base(stream_, num_owned, receiver_in_order_.data(), base_.data(), first_place_.data());
  number_by_receiver(stream_, list.num_edges, list.receiver.data(), list.first_of_receiver.data(), first_place_.data(),
                     list.own_sender.data(), number, sender_of_number_.resize(list.num_edges));
}

/// The order of a list's edges by sender.
void DeviceTopologyBuilder::index(DeviceList& list, std::int64_t num_owned, std::int64_t num_rows)
{
  number_edges(list, num_owned);
  // Rows are not negative, so that their order is that of unsigned numbers.
  const auto* sender = order_ == SenderOrder::ascending ? reinterpret_cast<const std::uint32_t*>(list.own_sender.data())
                                                        : sender_of_number_.data();
  parallel::sort_by_key(stream_, sender, sorted_sender_.resize(list.num_edges), edge_number_.data(),
                        list.sender_order.resize(list.num_edges), list.num_edges,
                        std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(num_rows)))), scratch_);
  write_firsts(stream_, num_rows, list.num_edges, sorted_sender_.data(), list.first_of_sender.resize(num_rows + 1));
}

void DeviceTopologyBuilder::build(std::span<const Vec3> positions, const Candidates& candidates, const Box& box,
                                  std::span<const double> cutoffs, double skin, std::int64_t epoch,
                                  Communicator& communicator, DeviceTopology& into)
{
  TESSERA_REQUIRE(!cutoffs.empty(), "a topology needs at least one cutoff");
  TESSERA_REQUIRE(into.lists.size() == cutoffs.size(), "expected {} lists, found {}", cutoffs.size(),
                  into.lists.size());
  TESSERA_REQUIRE(into.device == stream_.device, "expected a topology of device {}, found one of {} (-1 is the host)",
                  stream_.device.gpu, into.device.gpu);
  const CurrentDevice scope(stream_.device);
  while (works_.size() < cutoffs.size()) works_.emplace_back(stream_.device);
  const std::int64_t num_candidates = candidates.count();
  into.epoch = epoch;
  into.num_owned = static_cast<std::int64_t>(positions.size());
  into.num_candidates = num_candidates;
  into.num_candidate_peers = candidates.num_peers;

  DeviceList& wide = into.lists.back();
  const Vec3* extended = upload(positions, candidates.positions);
  wide.num_edges = search_.find(extended, into.num_owned + num_candidates, into.num_owned, box, cutoffs.back() + skin,
                                {wide.receiver, wide.sender, wide.shift, wide.first_of_receiver});
  const Findings found = mark(box, cutoffs, skin, num_candidates, into);
  for (std::size_t l = 0; l < cutoffs.size(); ++l) {
    into.lists[l].cutoff = cutoffs[l];
    into.lists[l].num_edges = found.num_edges[l];
    fill(into, l, found.used[l]);
  }
  for (std::size_t l = 0; l < cutoffs.size(); ++l) {
    into.lists[l].plan = plan_for(found.used[l], candidates, epoch, into.num_owned, communicator);
  }
}

}  // namespace tessera
