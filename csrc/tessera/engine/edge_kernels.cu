// SPDX-License-Identifier: MIT
#include "tessera/engine/edge_kernels.hpp"

#include "tessera/device/parallel.cuh"
#include "tessera/model/padding.hpp"

namespace tessera {

namespace {

struct Vector {
  double x, y, z;
};

/// edge_vector() of two rows, from the cell and the positions behind it; the same operations in the same order.
TESSERA_HOST_DEVICE inline Vector vector_between(const double* cell_and_positions, std::int64_t receiver,
                                                 std::int64_t sender, const std::int32_t* shift)
{
  const double* cell = cell_and_positions;
  const double* r_i = cell_and_positions + kCellDoubles + 3 * receiver;
  const double* r_j = cell_and_positions + kCellDoubles + 3 * sender;
  double v[3];
  for (int c = 0; c < 3; ++c) {
    double translation = 0;
    for (int k = 0; k < 3; ++k) translation = translation + static_cast<double>(shift[k]) * cell[3 * k + c];
    v[c] = (r_i[c] - r_j[c]) - translation;
  }
  return {v[0], v[1], v[2]};
}

/// Where an extended row stands in arrays of N padded owned rows followed by slots.
TESSERA_HOST_DEVICE inline std::int64_t padded_row(std::int64_t row, std::int64_t num_owned, std::int64_t num_rows,
                                                   const std::int32_t* slot)
{
  return row < num_owned ? row : num_rows + slot[row - num_owned];
}

TESSERA_HOST_DEVICE inline Vector vector_of(const ListView& list, const double* cell_and_positions, std::int64_t pair)
{
  const std::int64_t sender = padded_row(list.sender[pair], *list.num_owned, list.extents.rows, list.wide_slot);
  return vector_between(cell_and_positions, list.receiver[pair], sender,
                        reinterpret_cast<const std::int32_t*>(list.shift + pair));
}

TESSERA_HOST_DEVICE inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// The padding edges: `count` of them from `first` on, spread over `rows` padding rows.
struct Padding {
  std::int64_t first, count, rows;

  /// Which padding row the k-th padding edge belongs to.
  TESSERA_HOST_DEVICE std::int64_t row_of(std::int64_t k) const { return k * rows / count; }
  /// The first edge of padding row j (and the end of row j - 1).
  TESSERA_HOST_DEVICE std::int64_t begin_of(std::int64_t j) const { return first + (j * count + rows - 1) / rows; }
};

TESSERA_HOST_DEVICE inline Padding padding_of(const ListView& list)
{
  const std::int64_t num_edges = least(list.place[list.extents.pairs], list.extents.edges);
  return {num_edges, list.extents.edges - num_edges, list.extents.rows - *list.num_owned};
}

void write_real_edges(const ListView& list, const double* cell_and_positions, StreamRef stream)
{
  parallel::for_each(
      stream, list.extents.pairs, TESSERA_LAMBDA(std::int64_t p) {
        if (list.keep[p] != 0 && list.place[p] < list.extents.edges) {
          const std::int64_t e = list.place[p];
          const Vector v = vector_of(list, cell_and_positions, p);
          list.edge_vector[3 * e] = v.x;
          list.edge_vector[3 * e + 1] = v.y;
          list.edge_vector[3 * e + 2] = v.z;
          list.edge_receiver[e] = list.receiver[p];
          list.edge_sender[e] = padded_row(list.own_sender[p], *list.num_owned, list.extents.rows, list.slot);
        }
        if (list.keep_by_sender[p] != 0 && list.place_by_sender[p] < list.extents.edges) {
          list.edge_order[list.place_by_sender[p]] =
              least(list.place[list.sender_order[p]], list.extents.edges - 1);  // beyond: the step is void
        }
      });
}

void write_padding_edges(const ListView& list, StreamRef stream)
{
  parallel::for_each(
      stream, list.extents.edges, TESSERA_LAMBDA(std::int64_t e) {
        const Padding padding = padding_of(list);
        if (e < padding.first) return;
        const std::int64_t row = *list.num_owned + padding.row_of(e - padding.first);
        list.edge_vector[3 * e] = kPaddingDistance * list.cutoff;
        list.edge_vector[3 * e + 1] = 0;
        list.edge_vector[3 * e + 2] = 0;
        list.edge_receiver[e] = row;
        list.edge_sender[e] = row;
        list.edge_order[e] = e;
      });
}

void write_ranges(const ListView& list, StreamRef stream)
{
  const std::int64_t num_rows = list.extents.rows;
  parallel::for_each(
      stream, num_rows + list.extents.halo, TESSERA_LAMBDA(std::int64_t row) {
        const std::int64_t num_owned = *list.num_owned, room = list.extents.edges;
        std::int64_t* by_sender = list.sender_range + 2 * row;
        const std::int64_t extended = row < num_rows ? row : num_owned + list.halo_row[row - num_rows];
        if (row < num_owned || row >= num_rows) {
          const bool is_empty = row >= num_rows && list.halo_row[row - num_rows] < 0;
          by_sender[0] = is_empty ? 0 : least(list.place_by_sender[list.first_of_sender[extended]], room);
          by_sender[1] = is_empty ? 0 : least(list.place_by_sender[list.first_of_sender[extended + 1]], room);
        }
        if (row >= num_rows) return;
        std::int64_t* by_receiver = list.receiver_range + 2 * row;
        if (row < num_owned) {
          by_receiver[0] = least(list.place[list.first_of_receiver[row]], room);
          by_receiver[1] = least(list.place[list.first_of_receiver[row + 1]], room);
        } else {
          const Padding padding = padding_of(list);
          by_receiver[0] = by_sender[0] = padding.begin_of(row - num_owned);
          by_receiver[1] = by_sender[1] = padding.begin_of(row - num_owned + 1);
        }
      });
}

}  // namespace

void mark_edges(const ListView& list, const double* cell_and_positions, StreamRef stream,
                DeviceArray<std::byte>& scratch)
{
  const std::int64_t num_pairs = list.extents.pairs;
  clear_bytes(list.status, 2 * sizeof(std::int64_t), stream);
  parallel::for_each(
      stream, num_pairs + 1, TESSERA_LAMBDA(std::int64_t p) {
        bool is_edge = false;
        if (p < *list.num_pairs) {
          const Vector v = vector_of(list, cell_and_positions, p);
          const double distance_sq = v.x * v.x + v.y * v.y + v.z * v.z;
          is_edge = distance_sq <= list.cutoff * list.cutoff;
          // several pairs may write here: whichever stays is a true one
          if (distance_sq < kCoincidentDistance * kCoincidentDistance) list.status[1] = p + 1;
        }
        list.keep[p] = is_edge ? 1 : 0;
      });
  parallel::exclusive_scan(stream, list.keep, list.place, num_pairs + 1, scratch);
  parallel::for_each(
      stream, num_pairs + 1, TESSERA_LAMBDA(std::int64_t p) {
        list.keep_by_sender[p] = p < *list.num_pairs ? list.keep[list.sender_order[p]] : 0;
        if (p == 0) list.status[0] = list.place[num_pairs];
      });
  parallel::exclusive_scan(stream, list.keep_by_sender, list.place_by_sender, num_pairs + 1, scratch);
}

void write_edges(const ListView& list, const double* cell_and_positions, StreamRef stream)
{
  write_real_edges(list, cell_and_positions, stream);
  write_padding_edges(list, stream);
  write_ranges(list, stream);
}

}  // namespace tessera
