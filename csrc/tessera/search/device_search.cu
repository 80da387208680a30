// SPDX-License-Identifier: MIT
#include "tessera/search/device_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.hpp"
#include "tessera/search/device_grid.cuh"

namespace tessera {
namespace {

using kernel::Grid;
using kernel::Image;
using kernel::Vector;

// The edges of one receiver are ordered by one number each: the sender's row, or what it is mapped to in scattered
// order, then the neighborhood, of which those with the smaller image come first.
using PartnerKey = std::uint64_t;
constexpr int kNeighborhoodBits = 32;

/// Rows times `factor` modulo 2^32; `inverse` undoes it.
struct RowMap {
  std::uint32_t factor = 1, inverse = 1;
};

RowMap row_map_of(SenderOrder order)
{
  if (order == SenderOrder::ascending) return {};
  return {ScatteredRows::kFactor, ScatteredRows::kInverse};
}

/// What a distance means for an edge.
struct Thresholds {
  double cutoff_sq;  ///< Å^2; edge_vector() decides
  double surely_sq;  ///< within this wrapped positions are enough
  double never_sq;   ///< beyond this too
};

Thresholds thresholds_of(const Grid& grid, double cutoff)
{
  const double surely = std::max(0.0, cutoff - 2 * (grid.reach - cutoff));
  return {cutoff * cutoff, surely * surely, grid.reach * grid.reach};
}

TESSERA_HOST_DEVICE inline Image shift_of(const Grid& grid, std::int64_t receiver, std::int64_t sender,
                                          const Image& image)
{
  Image shift{};
  for (int k = 0; k < 3; ++k) {
    shift.x[k] = image.x[k] + grid.wraps[3 * receiver + k] - grid.wraps[3 * sender + k];
  }
  return shift;
}

TESSERA_HOST_DEVICE inline bool is_edge(const Grid& grid, const Thresholds& reach, std::int64_t receiver,
                                        std::int64_t sender, const Image& image)
{
  return kernel::edge_length_sq(grid.box, kernel::vector_at(grid.positions, receiver),
                                kernel::vector_at(grid.positions, sender),
                                shift_of(grid, receiver, sender, image)) <= reach.cutoff_sq;
}

/// Partners in one neighborhood of the receiver that stands at `place`: returns how many, and writes the key of each
/// unless `partners` is null.
TESSERA_HOST_DEVICE inline std::int32_t find_partners(const Grid& grid, const Thresholds& reach, std::int64_t place,
                                                      std::int64_t number, const RowMap& map, PartnerKey* partners)
{
  const kernel::Neighborhood near = kernel::neighborhood(grid, grid.keys[place], number);
  const std::int64_t first = kernel::first_place(grid.keys, 0, grid.num_atoms, near.key);
  const std::int64_t last = kernel::first_place(grid.keys, first, grid.num_atoms, near.key + 1);
  const bool is_home = near.image.x[0] == 0 && near.image.x[1] == 0 && near.image.x[2] == 0;
  const Vector center =
      kernel::difference(kernel::vector_at(grid.wrapped, place), kernel::translation(grid.box, near.image));
  const std::int64_t receiver = grid.rows[place];
  std::int32_t count = 0;
  for (std::int64_t other = first; other < last; ++other) {
    const double distance_sq = kernel::squared(kernel::difference(center, kernel::vector_at(grid.wrapped, other)));
    if (distance_sq > reach.never_sq || (is_home && other == place)) continue;
    if (distance_sq > reach.surely_sq && !is_edge(grid, reach, receiver, grid.rows[other], near.image)) continue;
    if (partners != nullptr) {
      const std::uint32_t mapped = static_cast<std::uint32_t>(grid.rows[other]) * map.factor;
      partners[count] = (static_cast<PartnerKey>(mapped) << kNeighborhoodBits) | static_cast<PartnerKey>(number);
    }
    ++count;
  }
  return count;
}

void mark_receivers(StreamRef stream, const Grid& grid, std::int64_t num_receivers, std::int32_t* is_receiver)
{
  parallel::for_each(
      stream, grid.num_atoms,
      TESSERA_LAMBDA(std::int64_t place) { is_receiver[place] = grid.rows[place] < num_receivers ? 1 : 0; });
}

void collect_places(StreamRef stream, std::int64_t num_atoms, const std::int32_t* is_receiver, const std::int32_t* slot,
                    std::int32_t* receiver_place)
{
  parallel::for_each(
      stream, num_atoms, TESSERA_LAMBDA(std::int64_t place) {
        if (is_receiver[place] != 0) receiver_place[slot[place]] = static_cast<std::int32_t>(place);
      });
}

// Neighbouring items are receivers of one cell, which read the same atoms at the same time.

/// count [receivers, neighborhoods] + a 0: partners of each receiver in each neighborhood. The 0 is there for the scan,
/// whose last sum is that of all others: it reads what it does not add.
void count_partners(StreamRef stream, const Grid& grid, const Thresholds& reach, std::int64_t num_receivers,
                    const std::int32_t* receiver_place, std::int32_t* count)
{
  const std::int64_t num_items = num_receivers * grid.num_neighborhoods;
  parallel::for_each(
      stream, num_items + 1, TESSERA_LAMBDA(std::int64_t item) {
        if (item == num_items) {
          count[num_items] = 0;
          return;
        }
        const std::int64_t number = item / num_receivers, place = receiver_place[item % num_receivers];
        count[grid.rows[place] * grid.num_neighborhoods + number] =
            find_partners(grid, reach, place, number, RowMap{}, nullptr);
      });
}

/// partner [edges] and receiver [edges] by (receiver, neighborhood).
void write_partners(StreamRef stream, const Grid& grid, const Thresholds& reach, std::int64_t num_receivers,
                    const std::int32_t* receiver_place, const std::int64_t* first, const RowMap& map,
                    PartnerKey* partner, std::int32_t* receiver)
{
  const std::int64_t num_items = num_receivers * grid.num_neighborhoods;
  parallel::for_each(
      stream, num_items, TESSERA_LAMBDA(std::int64_t item) {
        const std::int64_t number = item / num_receivers, place = receiver_place[item % num_receivers];
        const std::int64_t row = grid.rows[place], segment = row * grid.num_neighborhoods + number;
        if (first[segment] == first[segment + 1]) return;
        find_partners(grid, reach, place, number, map, partner + first[segment]);
        for (std::int64_t e = first[segment]; e < first[segment + 1]; ++e) receiver[e] = static_cast<std::int32_t>(row);
      });
}

void write_ranges(StreamRef stream, std::int64_t num_receivers, std::int64_t num_neighborhoods,
                  const std::int64_t* first, std::int32_t* first_of_receiver)
{
  parallel::for_each(
      stream, num_receivers + 1, TESSERA_LAMBDA(std::int64_t i) {
        first_of_receiver[i] = static_cast<std::int32_t>(first[i * num_neighborhoods]);
      });
}

/// Moves each partner to its place among those of its receiver. Neighbouring items read the same partners.
void order_partners(StreamRef stream, const Grid& grid, std::int64_t num_edges, const std::int32_t* receiver,
                    const std::int32_t* first_of_receiver, const RowMap& map, const PartnerKey* partner,
                    std::int32_t* sender, std::int32_t* shift)
{
  parallel::for_each(
      stream, num_edges, TESSERA_LAMBDA(std::int64_t e) {
        const std::int32_t i = receiver[e];
        const PartnerKey key = partner[e];
        const std::int32_t first = first_of_receiver[i], last = first_of_receiver[i + 1];
        std::int32_t place = first;
        for (std::int32_t other = first; other < last; ++other) place += partner[other] < key ? 1 : 0;
        const auto j = static_cast<std::int32_t>(static_cast<std::uint32_t>(key >> kNeighborhoodBits) * map.inverse);
        const auto number = static_cast<std::int64_t>(key & ((PartnerKey{1} << kNeighborhoodBits) - 1));
        const Image image = kernel::neighborhood(grid, grid.key_of_row[i], number).image;
        const Image found = shift_of(grid, i, j, image);
        sender[place] = j;
        for (int k = 0; k < 3; ++k) shift[3 * static_cast<std::int64_t>(place) + k] = found.x[k];
      });
}

}  // namespace

void require_countable_edges(std::int64_t num_edges, double reach)
{
  TESSERA_REQUIRE(num_edges < std::numeric_limits<std::int32_t>::max(),
                  "expected fewer than 2^31 pairs within {} Å of one rank's atoms, found {}; use more ranks", reach,
                  num_edges);
}

DeviceSearch::DeviceSearch(StreamRef stream, SenderOrder order)
    : stream_(stream),
      order_(order),
      grid_(stream),
      is_receiver_(stream.device),
      slot_(stream.device),
      receiver_place_(stream.device),
      count_(stream.device),
      first_(stream.device),
      partner_(stream.device),
      total_here_(stream.device, MemoryKind::pinned),
      scratch_(stream.device)
{
}

/// Where the receivers stand in the order of cells.
const std::int32_t* DeviceSearch::list_receivers(const Grid& grid, std::int64_t num_receivers)
{
  mark_receivers(stream_, grid, num_receivers, is_receiver_.resize(grid.num_atoms));
  parallel::exclusive_scan(stream_, is_receiver_.data(), slot_.resize(grid.num_atoms), grid.num_atoms, scratch_);
  collect_places(stream_, grid.num_atoms, is_receiver_.data(), slot_.data(), receiver_place_.resize(num_receivers));
  return receiver_place_.data();
}

/// Scans the counts; returns their sum.
std::int64_t DeviceSearch::total(std::int64_t num_items)
{
  parallel::exclusive_scan(stream_, count_.data(), first_.resize(num_items + 1), num_items + 1, scratch_);
  copy_bytes(total_here_.resize(1), first_.data() + num_items, sizeof(std::int64_t), stream_);
  synchronize(stream_);
  return *total_here_.data();
}

std::int64_t DeviceSearch::find(const Vec3* positions, std::int64_t num_positions, std::int64_t num_receivers,
                                const Box& box, double cutoff, EdgeArrays edges)
{
  TESSERA_REQUIRE(num_receivers >= 0 && num_receivers <= num_positions, "{} receivers among {} positions",
                  num_receivers, num_positions);
  TESSERA_REQUIRE(std::isfinite(cutoff) && cutoff > 0, "the cutoff must be positive, got {} Å", cutoff);
  TESSERA_REQUIRE(num_positions < std::numeric_limits<std::int32_t>::max(),
                  "expected fewer than 2^31 atoms on one rank, found {}; use more ranks", num_positions);
  const CurrentDevice scope(stream_.device);
  std::int32_t* first_of_receiver = edges.first_of_receiver.resize(num_receivers + 1);
  if (num_receivers == 0) {
    clear_bytes(first_of_receiver, sizeof(std::int32_t), stream_);
    edges.receiver.resize(0);
    edges.sender.resize(0);
    edges.shift.resize(0);
    return 0;
  }
  const Grid grid = grid_.fill(positions, num_positions, box, cutoff);
  const Thresholds reach = thresholds_of(grid, cutoff);
  const std::int32_t* places = list_receivers(grid, num_receivers);
  const RowMap map = row_map_of(order_);
  const std::int64_t num_items = num_receivers * grid.num_neighborhoods;
  count_partners(stream_, grid, reach, num_receivers, places, count_.resize(num_items + 1));
  const std::int64_t num_edges = total(num_items);
  require_countable_edges(num_edges, cutoff);
  std::int32_t* receiver = edges.receiver.resize(num_edges);
  write_partners(stream_, grid, reach, num_receivers, places, first_.data(), map, partner_.resize(num_edges), receiver);
  write_ranges(stream_, num_receivers, grid.num_neighborhoods, first_.data(), first_of_receiver);
  order_partners(stream_, grid, num_edges, receiver, first_of_receiver, map, partner_.data(),
                 edges.sender.resize(num_edges), kernel::components(edges.shift.resize(num_edges)));
  return num_edges;
}

}  // namespace tessera
