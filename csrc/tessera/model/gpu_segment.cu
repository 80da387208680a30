// SPDX-License-Identifier: MIT
// Reductions over the edges of each receiver: one thread writes one column of one receiver, in edge order.
#include "tessera/model/gpu_kernels.hpp"
#include "tessera/model/gpu_launch.cuh"

namespace tessera::operators::gpu {
namespace {

template <typename Real>
__global__ void sum_columns(Segments<Real> in, Real* __restrict__ out)
{
  const auto item = global_item();
  if (item >= in.num_rows * in.width) return;
  const auto i = item / in.width, c = item % in.width;
  Real total = 0;
  for (auto e = in.range[2 * i]; e < in.range[2 * i + 1]; ++e) total += in.values[e * in.width + c];
  out[item] = total;
}

template <typename Real>
__global__ void max_columns(Segments<Real> in, Real* __restrict__ out)
{
  const auto item = global_item();
  if (item >= in.num_rows * in.width) return;
  const auto i = item / in.width, c = item % in.width;
  Real largest = 0;
  bool is_empty = true;
  for (auto e = in.range[2 * i]; e < in.range[2 * i + 1]; ++e) {
    if (!in.active[e]) continue;
    const Real value = in.values[e * in.width + c];
    if (is_empty || value > largest) largest = value;
    is_empty = false;
  }
  out[item] = largest;
}

/// Each of the k edges that reach the maximum gets 1/k of the gradient.
template <typename Real>
__global__ void max_columns_backward(MaxGradient<Real> g, Real* __restrict__ out)
{
  const auto item = global_item();
  const auto width = g.in.width;
  if (item >= g.in.num_rows * width) return;
  const auto i = item / width, c = item % width;
  const auto first = g.in.range[2 * i], last = g.in.range[2 * i + 1];
  const Real maximum = g.maximum[item];
  const auto attains = [&](std::int64_t e) { return g.in.active[e] && g.in.values[e * width + c] == maximum; };
  Real count = 0;
  for (auto e = first; e < last; ++e) count += attains(e) ? Real(1) : Real(0);
  const Real share = count > 0 ? g.grad[item] / count : Real(0);
  for (auto e = first; e < last; ++e) out[e * width + c] = attains(e) ? share : Real(0);
}

/// One block a receiver, one thread an edge: an edge is kept if fewer than `count` active ones come before it.
template <typename Real>
__global__ void keep_nearest(NearestEdges<Real> in, bool* __restrict__ out)
{
  const std::int64_t i = blockIdx.x;
  const auto first = in.range[2 * i], last = in.range[2 * i + 1];
  for (auto e = first + threadIdx.x; e < last; e += blockDim.x) {
    const Real distance = in.distance[e];
    std::int64_t nearer = 0;
    for (auto f = first; f < last; ++f) {
      const Real other = in.distance[f];
      nearer += in.active[f] && (other < distance || (other == distance && f < e)) ? 1 : 0;
    }
    out[e] = in.active[e] && nearer < in.count;
  }
}

}  // namespace

template <typename Real>
void sum(const Segments<Real>& in, Real* out, Stream stream)
{
  const auto items = in.num_rows * in.width;
  if (items == 0) return;
  sum_columns<<<blocks_for(items), kBlock, 0, stream>>>(in, out);
  check_launch("segment_sum");
}

template <typename Real>
void max(const Segments<Real>& in, Real* out, Stream stream)
{
  const auto items = in.num_rows * in.width;
  if (items == 0) return;
  max_columns<<<blocks_for(items), kBlock, 0, stream>>>(in, out);
  check_launch("segment_max");
}

template <typename Real>
void max_backward(const MaxGradient<Real>& g, Real* out, Stream stream)
{
  const auto items = g.in.num_rows * g.in.width;
  if (items == 0) return;
  max_columns_backward<<<blocks_for(items), kBlock, 0, stream>>>(g, out);
  check_launch("segment_max_backward");
}

template <typename Real>
void nearest_edges(const NearestEdges<Real>& in, bool* out, Stream stream)
{
  if (in.num_rows == 0) return;
  keep_nearest<<<static_cast<unsigned>(in.num_rows), kBlock, 0, stream>>>(in, out);
  check_launch("nearest_edges");
}

#define TESSERA_INSTANTIATE(Real)                                      \
  template void sum(const Segments<Real>&, Real*, Stream);             \
  template void max(const Segments<Real>&, Real*, Stream);             \
  template void max_backward(const MaxGradient<Real>&, Real*, Stream); \
  template void nearest_edges(const NearestEdges<Real>&, bool*, Stream);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(double)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::operators::gpu
