// SPDX-License-Identifier: MIT
// The three derivatives of sum_e sum_r sum_c harmonics[e, r] radial[e, l(r), c] features[i, r, c].
#include "tessera/model/gpu_kernels.hpp"
#include "tessera/model/gpu_launch.cuh"

namespace tessera::operators::gpu {
namespace {

constexpr int kWarp = 32;

/// Degree of row r: the largest l with l^2 <= r.
__device__ std::int64_t degree_of(std::int64_t row)
{
  std::int64_t degree = 0;
  while ((degree + 1) * (degree + 1) <= row) ++degree;
  return degree;
}

/// One thread a feature: sums over the receiver's edges, in edge order.
template <typename Real>
__global__ void sum_features(Triple<Real> in, Real* __restrict__ features)
{
  const auto item = global_item();
  if (item >= in.num_rows * in.rows * in.channels) return;
  const auto c = item % in.channels, r = item / in.channels % in.rows, i = item / in.channels / in.rows;
  const auto column = degree_of(r) * in.channels + c, stride = in.degrees * in.channels;
  Real total = 0;
  for (auto e = in.receiver_range[2 * i]; e < in.receiver_range[2 * i + 1]; ++e) {
    total += in.harmonics[e * in.rows + r] * in.radial[e * stride + column];
  }
  features[item] = total;
}

/// One thread a radial value: sums over the rows of its degree.
template <typename Real>
__global__ void sum_radial(Triple<Real> in, Real* __restrict__ radial)
{
  const auto item = global_item();
  if (item >= in.num_edges * in.degrees * in.channels) return;
  const auto c = item % in.channels, l = item / in.channels % in.degrees, e = item / in.channels / in.degrees;
  const Real* features = in.features + in.receiver[e] * in.rows * in.channels + c;
  Real total = 0;
  for (auto r = l * l; r < (l + 1) * (l + 1); ++r) total += in.harmonics[e * in.rows + r] * features[r * in.channels];
  radial[item] = total;
}

/// One warp a harmonic: sums over channels, lanes joined in a fixed order.
template <typename Real>
__global__ void sum_harmonics(Triple<Real> in, Real* __restrict__ harmonics)
{
  const auto item = global_item() / kWarp;
  if (item >= in.num_edges * in.rows) return;  // a whole warp at once
  const auto r = item % in.rows, e = item / in.rows;
  const Real* features = in.features + (in.receiver[e] * in.rows + r) * in.channels;
  const Real* radial = in.radial + (e * in.degrees + degree_of(r)) * in.channels;
  Real total = 0;
  const int lane = threadIdx.x % kWarp;
  for (std::int64_t c = lane; c < in.channels; c += kWarp) total += features[c] * radial[c];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffU, total, offset);
  if (lane == 0) harmonics[item] = total;
}

}  // namespace

template <typename Real>
void differentiate(const Triple<Real>& in, const Derivatives<Real>& out, Stream stream)
{
  const auto features = in.num_rows * in.rows * in.channels;
  if (out.features && features > 0) {
    sum_features<<<blocks_for(features), kBlock, 0, stream>>>(in, out.features);
    check_launch("outer_sum");
  }
  const auto radial = in.num_edges * in.degrees * in.channels;
  if (out.radial && radial > 0) {
    sum_radial<<<blocks_for(radial), kBlock, 0, stream>>>(in, out.radial);
    check_launch("harmonic_dot");
  }
  const auto harmonics = in.num_edges * in.rows;
  if (out.harmonics && harmonics > 0) {
    sum_harmonics<<<blocks_for(harmonics * kWarp), kBlock, 0, stream>>>(in, out.harmonics);
    check_launch("harmonics");
  }
}

template void differentiate(const Triple<float>&, const Derivatives<float>&, Stream);
template void differentiate(const Triple<double>&, const Derivatives<double>&, Stream);

}  // namespace tessera::operators::gpu
