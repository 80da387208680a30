// SPDX-License-Identifier: MIT
// Between edges and the receiver's rows of harmonics, degree by degree:
//     outer_sum     features[i, r, c] = sum_e harmonics[e, r] radial[e, l(r), c]       edges -> rows
//     harmonic_dot  radial[e, l, c]   = sum_{r of l} harmonics[e, r] features[i, r, c] rows -> edges, its transpose
// Either one's derivative is made of the same three loops.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>

#include "tessera/base/error.hpp"
#include "tessera/model/gpu_kernels.hpp"
#include "tessera/model/operator_support.hpp"

namespace tessera::operators {
namespace {

template <typename Real>
TESSERA_KERNEL void edge_degree(const Triple<Real>& in, const Derivatives<Real>& out, std::int64_t i, std::int64_t e,
                                std::int64_t degree)
{
  const auto offset = (e * in.degrees + degree) * in.channels;
  if (out.radial) std::fill(out.radial + offset, out.radial + offset + in.channels, Real(0));
  for (auto r = degree * degree; r < (degree + 1) * (degree + 1); ++r) {
    const auto row = (i * in.rows + r) * in.channels;
    if (out.features) {
      const Real harmonic = in.harmonics[e * in.rows + r];
      const Real* __restrict__ radial = in.radial + offset;
      Real* __restrict__ sum = out.features + row;
#pragma omp simd
      for (std::int64_t c = 0; c < in.channels; ++c) sum[c] += harmonic * radial[c];
    }
    if (out.radial) {
      const Real harmonic = in.harmonics[e * in.rows + r];
      const Real* __restrict__ features = in.features + row;
      Real* __restrict__ sum = out.radial + offset;
#pragma omp simd
      for (std::int64_t c = 0; c < in.channels; ++c) sum[c] += harmonic * features[c];
    }
    if (out.harmonics) {
      const Real* __restrict__ radial = in.radial + offset;
      const Real* __restrict__ features = in.features + row;
      Real sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t c = 0; c < in.channels; ++c) sum += features[c] * radial[c];
      out.harmonics[e * in.rows + r] = sum;
    }
  }
}

template <typename Real>
TESSERA_KERNEL void differentiate_rows(const Triple<Real>& in, const Derivatives<Real>& out, std::int64_t first,
                                       std::int64_t last)
{
  const auto size = in.rows * in.channels;
  if (out.features) std::fill(out.features + first * size, out.features + last * size, Real(0));
  for (auto i = first; i < last; ++i) {
    for (auto e = in.receiver_range[2 * i]; e < in.receiver_range[2 * i + 1]; ++e) {
      for (std::int64_t degree = 0; degree < in.degrees; ++degree) edge_degree(in, out, i, e, degree);
    }
  }
}

TESSERA_MULTIVERSION void differentiate(const Triple<float>& in, const Derivatives<float>& out, std::int64_t first,
                                        std::int64_t last)
{
  differentiate_rows(in, out, first, last);
}
TESSERA_MULTIVERSION void differentiate(const Triple<double>& in, const Derivatives<double>& out, std::int64_t first,
                                        std::int64_t last)
{
  differentiate_rows(in, out, first, last);
}

/// The three tensors, inputs and outputs alike; undefined: neither read nor written.
struct Tensors {
  at::Tensor harmonics, radial, features;
};

void check(const char* op, const Tensors& in, const at::Tensor& receiver, const at::Tensor& range)
{
  const auto type = require_floating(op, "harmonics", in.harmonics, {kAny, kAny});
  const auto num_edges = in.harmonics.size(0), rows = in.harmonics.size(1);
  require(op, "receiver", receiver, at::kLong, {num_edges});
  require(op, "receiver_range", range, at::kLong, {kAny, 2});
  const auto degrees = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(rows))));
  TESSERA_REQUIRE(degrees * degrees == rows, "tessera::{}: harmonics must have (lmax + 1)^2 rows, found {}", op, rows);
  auto channels = kAny;
  if (in.radial.defined()) {
    require(op, "radial", in.radial, type, {num_edges, degrees, kAny});
    channels = in.radial.size(2);
  }
  if (in.features.defined()) require(op, "features", in.features, type, {range.size(0), rows, channels});
}

void run(const Tensors& in, const Tensors& out, const at::Tensor& receiver, const at::Tensor& range)
{
  const auto channels = in.radial.defined() ? in.radial.size(2) : in.features.size(2);
  const auto rows = in.harmonics.size(1);
  const auto degrees = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(rows))));
  dispatch(in.harmonics.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    const auto read = [](const at::Tensor& t) { return t.defined() ? t.const_data_ptr<Real>() : nullptr; };
    const auto write = [](const at::Tensor& t) { return t.defined() ? t.mutable_data_ptr<Real>() : nullptr; };
    const Triple<Real> triple{read(in.harmonics),
                              read(in.radial),
                              read(in.features),
                              receiver.const_data_ptr<std::int64_t>(),
                              range.const_data_ptr<std::int64_t>(),
                              rows,
                              degrees,
                              channels,
                              in.harmonics.size(0),
                              range.size(0)};
    const Derivatives<Real> derivatives{write(out.harmonics), write(out.radial), write(out.features)};
    if (in.harmonics.is_cuda()) return gpu::differentiate(triple, derivatives, stream_of(in.harmonics));
    for_rows(range.size(0), work_per_row(in.harmonics.size(0), range.size(0), rows * channels),
             [&](auto first, auto last) { differentiate(triple, derivatives, first, last); });
  });
}

at::Tensor outer_sum(const at::Tensor& harmonics, const at::Tensor& radial, const at::Tensor& receiver,
                     const at::Tensor& range)
{
  const Tensors in{harmonics, radial, {}};
  check("outer_sum", in, receiver, range);
  auto features = at::empty({range.size(0), harmonics.size(1), radial.size(2)}, radial.options());
  run(in, {{}, {}, features}, receiver, range);
  return features;
}

std::tuple<at::Tensor, at::Tensor> outer_sum_backward(const at::Tensor& grad, const at::Tensor& harmonics,
                                                      const at::Tensor& radial, const at::Tensor& receiver,
                                                      const at::Tensor& range)
{
  const Tensors in{harmonics, radial, grad};
  check("outer_sum_backward", in, receiver, range);
  const Tensors out{at::empty_like(harmonics), at::empty_like(radial), {}};
  run(in, out, receiver, range);
  return {out.harmonics, out.radial};
}

at::Tensor harmonic_dot(const at::Tensor& harmonics, const at::Tensor& features, const at::Tensor& receiver,
                        const at::Tensor& range)
{
  const Tensors in{harmonics, {}, features};
  check("harmonic_dot", in, receiver, range);
  const auto degrees = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(harmonics.size(1)))));
  auto radial = at::empty({harmonics.size(0), degrees, features.size(2)}, features.options());
  run(in, {{}, radial, {}}, receiver, range);
  return radial;
}

std::tuple<at::Tensor, at::Tensor> harmonic_dot_backward(const at::Tensor& grad, const at::Tensor& harmonics,
                                                         const at::Tensor& features, const at::Tensor& receiver,
                                                         const at::Tensor& range)
{
  const Tensors in{harmonics, grad, features};
  check("harmonic_dot_backward", in, receiver, range);
  const Tensors out{at::empty_like(harmonics), {}, at::empty_like(features)};
  run(in, out, receiver, range);
  return {out.harmonics, out.features};
}

void add_kernels(torch::Library& m)
{
  m.impl("outer_sum", &Recorded<&outer_sum>::call);
  m.impl("outer_sum_backward", &Recorded<&outer_sum_backward>::call);
  m.impl("harmonic_dot", &Recorded<&harmonic_dot>::call);
  m.impl("harmonic_dot_backward", &Recorded<&harmonic_dot_backward>::call);
}

}  // namespace

TORCH_LIBRARY_IMPL(tessera, CPU, m) { add_kernels(m); }
TORCH_LIBRARY_IMPL(tessera, CUDA, m) { add_kernels(m); }

}  // namespace tessera::operators
