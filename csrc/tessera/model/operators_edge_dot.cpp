// SPDX-License-Identifier: MIT
// Attention scores: the dot product of the receiver's query and the sender's key, head by head.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <tuple>

#include "tessera/model/edge_arguments.hpp"
#include "tessera/model/gpu_kernels.hpp"

namespace tessera::operators {
namespace {

template <typename Real>
TESSERA_KERNEL void forward_rows(const EdgeDot<Real>& in, Real* __restrict__ out, std::int64_t first, std::int64_t last)
{
  const auto row = in.heads * in.width;
  for (auto i = first; i < last; ++i) {
    for (auto e = in.edges.receiver_range[2 * i]; e < in.edges.receiver_range[2 * i + 1]; ++e) {
      for (std::int64_t h = 0; h < in.heads; ++h) {
        const Real* __restrict__ query = in.query + i * row + h * in.width;
        const Real* __restrict__ key = in.key + in.edges.sender[e] * row + h * in.width;
        Real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t d = 0; d < in.width; ++d) sum += query[d] * key[d];
        out[e * in.heads + h] = sum;
      }
    }
  }
}

/// out[h, :] += scale[h] * values[h, :]
template <typename Real>
TESSERA_KERNEL void add_scaled(Real* __restrict__ out, const Real* __restrict__ scale, const Real* __restrict__ values,
                               std::int64_t heads, std::int64_t width)
{
  for (std::int64_t h = 0; h < heads; ++h) {
#pragma omp simd
    for (std::int64_t d = 0; d < width; ++d) out[h * width + d] += scale[h] * values[h * width + d];
  }
}

template <typename Real>
TESSERA_KERNEL void query_rows(const EdgeDot<Real>& in, Real* __restrict__ out, std::int64_t first, std::int64_t last)
{
  const auto row = in.heads * in.width;
  std::fill(out + first * row, out + last * row, Real(0));
  for (auto i = first; i < last; ++i) {
    for (auto e = in.edges.receiver_range[2 * i]; e < in.edges.receiver_range[2 * i + 1]; ++e) {
      add_scaled(out + i * row, in.grad + e * in.heads, in.key + in.edges.sender[e] * row, in.heads, in.width);
    }
  }
}

template <typename Real>
TESSERA_KERNEL void key_rows(const EdgeDot<Real>& in, Real* __restrict__ out, std::int64_t first, std::int64_t last)
{
  const auto row = in.heads * in.width;
  std::fill(out + first * row, out + last * row, Real(0));
  for (auto j = first; j < last; ++j) {
    for (auto p = in.edges.sender_range[2 * j]; p < in.edges.sender_range[2 * j + 1]; ++p) {
      const auto e = in.edges.sender_order[p];
      add_scaled(out + j * row, in.grad + e * in.heads, in.query + in.edges.receiver[e] * row, in.heads, in.width);
    }
  }
}

// One version a type and an instruction set; overloads, because templates take no target_clones.
#define TESSERA_EDGE_DOT(Real)                                                                                        \
  TESSERA_MULTIVERSION void scores(const EdgeDot<Real>& in, Real* out, std::int64_t first, std::int64_t last)         \
  {                                                                                                                   \
    forward_rows(in, out, first, last);                                                                               \
  }                                                                                                                   \
  TESSERA_MULTIVERSION void query_gradient(const EdgeDot<Real>& in, Real* out, std::int64_t first, std::int64_t last) \
  {                                                                                                                   \
    query_rows(in, out, first, last);                                                                                 \
  }                                                                                                                   \
  TESSERA_MULTIVERSION void key_gradient(const EdgeDot<Real>& in, Real* out, std::int64_t first, std::int64_t last)   \
  {                                                                                                                   \
    key_rows(in, out, first, last);                                                                                   \
  }
TESSERA_EDGE_DOT(float)
TESSERA_EDGE_DOT(double)
#undef TESSERA_EDGE_DOT

void check(const char* op, const at::Tensor& query, const at::Tensor& key)
{
  const auto type = require_floating(op, "query", query, {kAny, kAny, kAny});
  require(op, "key", key, type, {kAny, query.size(1), query.size(2)});
}

template <typename Real>
EdgeDot<Real> arguments(const EdgeArrays& edges, const at::Tensor& query, const at::Tensor& key)
{
  return {edges, query.const_data_ptr<Real>(), key.const_data_ptr<Real>(), nullptr, query.size(1), query.size(2)};
}

at::Tensor edge_dot(const at::Tensor& query, const at::Tensor& key, const at::Tensor& receiver,
                    const at::Tensor& sender, const at::Tensor& receiver_range, const at::Tensor& sender_order,
                    const at::Tensor& sender_range)
{
  check("edge_dot", query, key);
  const auto num_edges = receiver.numel(), num_rows = query.size(0);
  const auto edges = edge_arrays("edge_dot", receiver, sender, receiver_range, sender_order, sender_range, num_edges,
                                 num_rows, key.size(0));
  auto out = at::empty({num_edges, query.size(1)}, query.options());
  dispatch(query.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    const auto in = arguments<Real>(edges, query, key);
    auto* data = out.mutable_data_ptr<Real>();
    if (query.is_cuda()) return gpu::scores(in, data, stream_of(query));
    for_rows(num_rows, work_per_row(num_edges, num_rows, in.heads * in.width),
             [&](auto first, auto last) { scores(in, data, first, last); });
  });
  return out;
}

std::tuple<at::Tensor, at::Tensor> edge_dot_backward(const at::Tensor& grad, const at::Tensor& query,
                                                     const at::Tensor& key, const at::Tensor& receiver,
                                                     const at::Tensor& sender, const at::Tensor& receiver_range,
                                                     const at::Tensor& sender_order, const at::Tensor& sender_range)
{
  const char* op = "edge_dot_backward";
  check(op, query, key);
  const auto num_edges = receiver.numel(), num_rows = query.size(0), num_senders = key.size(0);
  require(op, "grad", grad, query.scalar_type(), {num_edges, query.size(1)});
  const auto edges =
      edge_arrays(op, receiver, sender, receiver_range, sender_order, sender_range, num_edges, num_rows, num_senders);
  auto grad_query = at::empty_like(query);
  auto grad_key = at::empty_like(key);
  dispatch(query.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    auto in = arguments<Real>(edges, query, key);
    in.grad = grad.const_data_ptr<Real>();
    auto* query_data = grad_query.mutable_data_ptr<Real>();
    auto* key_data = grad_key.mutable_data_ptr<Real>();
    if (query.is_cuda()) {
      gpu::query_gradient(in, query_data, stream_of(query));
      return gpu::key_gradient(in, key_data, stream_of(query));
    }
    for_rows(num_rows, work_per_row(num_edges, num_rows, in.heads * in.width),
             [&](auto first, auto last) { query_gradient(in, query_data, first, last); });
    for_rows(num_senders, work_per_row(num_edges, num_senders, in.heads * in.width),
             [&](auto first, auto last) { key_gradient(in, key_data, first, last); });
  });
  return {grad_query, grad_key};
}

void add_kernels(torch::Library& m)
{
  m.impl("edge_dot", &Recorded<&edge_dot>::call);
  m.impl("edge_dot_backward", &Recorded<&edge_dot_backward>::call);
}

}  // namespace

TORCH_LIBRARY_IMPL(tessera, CPU, m) { add_kernels(m); }
TORCH_LIBRARY_IMPL(tessera, CUDA, m) { add_kernels(m); }

}  // namespace tessera::operators
