// SPDX-License-Identifier: MIT
// Sums and products over edges of rows that are gathered through the list: attention scores, attention-weighted sums,
// and their derivatives.
#include "tessera/model/gpu_kernels.hpp"
#include "tessera/model/gpu_launch.cuh"

namespace tessera::operators::gpu {
namespace {

/// `width` neighbouring numbers, moved as one access of 16 bytes where width > 1.
template <typename Real, int width>
struct alignas(sizeof(Real) * width) Pack {
  Real value[width];
};

template <typename Real, int width>
__device__ Pack<Real, width> load(const Real* from)
{
  return *reinterpret_cast<const Pack<Real, width>*>(from);
}

/// Numbers that one access of 16 bytes holds.
template <typename Real>
constexpr int kPack = 16 / sizeof(Real);

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

/// out[row, moment, c] = sum over the row's edges e and their `terms` t of
///     scale[e, scale_index(moment, c) + t * scale_step] * source[other(e), c + t * columns]
/// in the order of the edges. Receivers read edge p of their range, senders edge order[p].
template <typename Real>
struct GatherSum {
  const std::int64_t* range;  // [rows, 2]
  const std::int64_t* order;  // [E]; nullptr: edges in their own order
  const std::int64_t* other;  // [E], row of the source that an edge reads
  const Real* scale;          // [E, scale_width]
  const Real* source;         // [*, source_width]
  std::int64_t num_rows, columns, moments, heads;
  std::int64_t head_width;  // head of column c: c / head_width; if that is 0, (c mod channels) mod heads
  std::int64_t channels, terms, scale_width, source_width;
};

/// One thread `width` neighbouring columns of one row. Where the head is c mod heads, neighbouring columns have
/// neighbouring heads; else they share one.
template <typename Real, int width>
__global__ void gather_sum(GatherSum<Real> in, Real* __restrict__ out)
{
  const auto packs = in.moments * in.columns / width;
  const auto item = global_item();
  if (item >= in.num_rows * packs) return;
  const auto row = item / packs, column = item % packs * width;
  const auto moment = column / in.columns, c = column % in.columns;
  const bool shares_head = in.head_width > 0;
  const auto scale_index = moment * in.heads + (shares_head ? c / in.head_width : c % in.channels % in.heads);
  Pack<Real, width> total{};
  const auto last = in.range[2 * row + 1];
#pragma unroll 4
  for (auto p = in.range[2 * row]; p < last; ++p) {
    const auto e = in.order ? in.order[p] : p;
    const Real* scale = in.scale + e * in.scale_width + scale_index;
    const Real* source = in.source + in.other[e] * in.source_width + c;
    for (std::int64_t t = 0; t < in.terms; ++t, scale += in.heads, source += in.columns) {
      const auto value = load<Real, width>(source);
      if (shares_head) {
        for (int k = 0; k < width; ++k) total.value[k] += *scale * value.value[k];
      } else {
        const auto weight = load<Real, width>(scale);
        for (int k = 0; k < width; ++k) total.value[k] += weight.value[k] * value.value[k];
      }
    }
  }
  *reinterpret_cast<Pack<Real, width>*>(out + row * in.moments * in.columns + column) = total;
}

template <typename Real>
void launch(const GatherSum<Real>& in, Real* out, Stream stream, const char* name)
{
  const auto items = in.num_rows * in.moments * in.columns;
  if (items == 0) return;
  constexpr int width = kPack<Real>;
  const bool has_packs = in.channels % width == 0 && (in.head_width > 0 ? in.head_width : in.heads) % width == 0;
  if (has_packs && is_aligned(in.scale) && is_aligned(in.source) && is_aligned(out)) {
    gather_sum<Real, width><<<blocks_for(items / width), kBlock, 0, stream>>>(in, out);
  } else {
    gather_sum<Real, 1><<<blocks_for(items), kBlock, 0, stream>>>(in, out);
  }
  check_launch(name);
}

/// One block a receiver, one thread an (edge, head): the receiver's query stays in the first cache.
template <typename Real, int width>
__global__ void dot_heads(EdgeDot<Real> in, Real* __restrict__ out)
{
  const std::int64_t i = blockIdx.x;
  const auto first = in.edges.receiver_range[2 * i];
  const auto heads = static_cast<unsigned>(in.heads);  // 32-bit division is the cheaper one
  const auto count = static_cast<unsigned>(in.edges.receiver_range[2 * i + 1] - first) * heads;
  const Real* query_row = in.query + i * in.heads * in.width;
  for (unsigned item = threadIdx.x; item < count; item += blockDim.x) {
    const std::int64_t e = first + item / heads, h = item % heads;
    const Real* query = query_row + h * in.width;
    const Real* key = in.key + (in.edges.sender[e] * in.heads + h) * in.width;
    Real total = 0;
    for (std::int64_t d = 0; d < in.width; d += width) {
      const auto q = load<Real, width>(query + d), k = load<Real, width>(key + d);
      for (int n = 0; n < width; ++n) total += q.value[n] * k.value[n];
    }
    out[first * in.heads + item] = total;
  }
}

/// One block a receiver, one thread an (edge, moment, head): sums over rows and the head's channels.
template <typename Real>
__global__ void dot_channels(WeightedSum<Real> in, Real* __restrict__ out)
{
  const std::int64_t i = blockIdx.x;
  const auto size = in.rows * in.channels, first = in.edges.receiver_range[2 * i];
  const auto heads = static_cast<unsigned>(in.heads), stride = static_cast<unsigned>(in.moments) * heads;
  const auto count = static_cast<unsigned>(in.edges.receiver_range[2 * i + 1] - first) * stride;
  for (unsigned item = threadIdx.x; item < count; item += blockDim.x) {
    const std::int64_t e = first + item / stride, a = item % stride / heads, h = item % heads;
    const Real* grad = in.grad + (i * in.moments + a) * size;
    const Real* values = in.values + in.edges.sender[e] * size;
    Real total = 0;
    for (std::int64_t r = 0; r < in.rows; ++r) {
      for (auto c = r * in.channels + h; c < (r + 1) * in.channels; c += in.heads) total += grad[c] * values[c];
    }
    out[first * stride + item] = total;
  }
}

}  // namespace

template <typename Real>
void scores(const EdgeDot<Real>& in, Real* out, Stream stream)
{
  if (in.edges.num_receivers == 0) return;
  const auto blocks = static_cast<unsigned>(in.edges.num_receivers);
  if (in.width % kPack<Real> == 0 && is_aligned(in.query) && is_aligned(in.key)) {
    dot_heads<Real, kPack<Real>><<<blocks, kBlock, 0, stream>>>(in, out);
  } else {
    dot_heads<Real, 1><<<blocks, kBlock, 0, stream>>>(in, out);
  }
  check_launch("edge_dot");
}

template <typename Real>
void query_gradient(const EdgeDot<Real>& in, Real* out, Stream stream)
{
  const auto& edges = in.edges;
  const auto columns = in.heads * in.width;
  launch<Real>({edges.receiver_range, nullptr, edges.sender, in.grad, in.key, edges.num_receivers, columns, 1, in.heads,
                in.width, columns, 1, in.heads, columns},
               out, stream, "edge_dot_backward, query");
}

template <typename Real>
void key_gradient(const EdgeDot<Real>& in, Real* out, Stream stream)
{
  const auto& edges = in.edges;
  const auto columns = in.heads * in.width;
  launch<Real>({edges.sender_range, edges.sender_order, edges.receiver, in.grad, in.query, edges.num_senders, columns,
                1, in.heads, in.width, columns, 1, in.heads, columns},
               out, stream, "edge_dot_backward, key");
}

template <typename Real>
void weighted_sum(const WeightedSum<Real>& in, Real* out, Stream stream)
{
  const auto& edges = in.edges;
  const auto columns = in.rows * in.channels;
  launch<Real>({edges.receiver_range, nullptr, edges.sender, in.weights, in.values, edges.num_receivers, columns,
                in.moments, in.heads, 0, in.channels, 1, in.moments * in.heads, columns},
               out, stream, "weighted_sum");
}

template <typename Real>
void weight_gradient(const WeightedSum<Real>& in, Real* out, Stream stream)
{
  if (in.edges.num_receivers == 0) return;
  dot_channels<<<static_cast<unsigned>(in.edges.num_receivers), kBlock, 0, stream>>>(in, out);
  check_launch("weighted_sum_backward, weights");
}

template <typename Real>
void value_gradient(const WeightedSum<Real>& in, Real* out, Stream stream)
{
  const auto& edges = in.edges;
  const auto columns = in.rows * in.channels;
  launch<Real>({edges.sender_range, edges.sender_order, edges.receiver, in.weights, in.grad, edges.num_senders, columns,
                1, in.heads, 0, in.channels, in.moments, in.moments * in.heads, in.moments * columns},
               out, stream, "weighted_sum_backward, values");
}

#define TESSERA_INSTANTIATE(Real)                                         \
  template void scores(const EdgeDot<Real>&, Real*, Stream);              \
  template void query_gradient(const EdgeDot<Real>&, Real*, Stream);      \
  template void key_gradient(const EdgeDot<Real>&, Real*, Stream);        \
  template void weighted_sum(const WeightedSum<Real>&, Real*, Stream);    \
  template void weight_gradient(const WeightedSum<Real>&, Real*, Stream); \
  template void value_gradient(const WeightedSum<Real>&, Real*, Stream);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(double)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::operators::gpu
