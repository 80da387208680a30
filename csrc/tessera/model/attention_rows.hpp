// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tessera/model/head_rows.hpp"
#include "tessera/model/kernel_arguments.hpp"
#include "tessera/model/spline.hpp"

// Edge attention on the CPU, one receiver (or one sender) at a time; formulas and shapes: edge_attention in
// python/tessera/kernels/reference.py. With a = g (q_i . k_j), w = e^(a - shift) p and S = sum w + 1e-3 F, an edge's
// weight is alpha = w u / S. Nothing of size edges x heads is kept: the backward passes compute a and w again.
namespace tessera::operators {

inline constexpr double kNormalizerFloor = 1e-3;

template <typename Real>
struct EdgeAttention {
  EdgeArrays edges;
  const Real* query;     // [N, scalars, heads]
  const Real* payload;   // [M, scalars + values, heads]
  const Real* gates;     // [E, 2, heads]; nullptr: the spline gives them
  Spline<Real> spline;   // of 2 heads
  const Real* envelope;  // [E]
  const Real* factor;    // [E, moments]
  const bool* active;    // [E]
  const Real* grad;      // [N, moments, values, heads], backward only
  const Real* message;   // the same, backward only
  const Real* state;     // [N, 3, heads]: largest score, normalizer S, how many edges attain the largest; backward
  std::int64_t scalars, values, moments, heads;
  bool is_smooth;

  [[nodiscard]] const Real* key_of(std::int64_t row) const { return payload + row * (scalars + values) * heads; }
  [[nodiscard]] const Real* value_of(std::int64_t row) const { return key_of(row) + scalars * heads; }
  [[nodiscard]] Real shift(Real largest) const { return is_smooth ? std::max(largest, Real(0)) : largest; }
};

/// Where the gradients go; [N, ...] and [E, ...] as the arguments that they belong to.
template <typename Real>
struct AttentionGradients {
  Real *query, *payload;
  Real* gates;     // nullptr where a spline gives the gates
  Real* fraction;  // nullptr where it does not
  Real *envelope, *factor;
  Real* delta;  // [N, heads], sum of grad times message: written for receivers, read for senders
};

/// One edge's rows of [heads]. `gates` holds score gates, then output gates; so do `slopes`.
template <typename Real>
struct EdgeRows {
  std::vector<Real> storage;
  Real *gates, *slopes, *product, *score, *weight, *sent, *dot;

  explicit EdgeRows(std::int64_t heads) : storage(9 * heads)
  {
    gates = storage.data();
    slopes = gates + 2 * heads;
    product = slopes + 2 * heads;
    score = product + heads;
    weight = score + heads;
    sent = weight + heads;
    dot = sent + heads;
  }
};

/// Gates, products q . k and scores of edge e from j to i. Callers compare scores for equality over passes, so this
/// is compiled once for all of them (see operators_attention.cpp).
template <typename Real>
TESSERA_KERNEL void score_body(const EdgeAttention<Real>& in, std::int64_t e, std::int64_t i, std::int64_t j,
                               Real* __restrict__ gates, Real* __restrict__ product, Real* __restrict__ score)
{
  const auto heads = in.heads;
  if (in.gates) {
    std::copy_n(in.gates + e * 2 * heads, 2 * heads, gates);
  } else {
    mix_rows(spline_weights(in.spline.fraction[e]), in.spline.table + in.spline.row[e] * 2 * heads, 2 * heads, gates);
  }
  dot_planes(in.query + i * in.scalars * heads, in.key_of(j), in.scalars, heads, product);
  for (std::int64_t h = 0; h < heads; ++h) score[h] = gates[h] * product[h];
}

template <typename Real>
using Score = void (*)(const EdgeAttention<Real>&, std::int64_t, std::int64_t, std::int64_t, Real*, Real*, Real*);

/// Message and state of receivers first..last-1.
template <typename Real, Score<Real> score_edge>
TESSERA_KERNEL void forward_rows(const EdgeAttention<Real>& in, Real* message, Real* state, std::int64_t first,
                                 std::int64_t last)
{
  const auto heads = in.heads, size = in.moments * in.values * heads;
  EdgeRows<Real> rows(heads);
  std::vector<Real> scores, gates;
  for (auto i = first; i < last; ++i) {
    const auto begin = in.edges.receiver_range[2 * i], end = in.edges.receiver_range[2 * i + 1];
    Real *out = message + i * size, *largest = state + 3 * i * heads, *normalizer = largest + heads,
         *ties = normalizer + heads;
    scores.resize((end - begin) * heads);
    gates.resize((end - begin) * heads);
    std::fill(largest, largest + heads, -std::numeric_limits<Real>::infinity());
    bool has_any = false;
    for (auto e = begin; e < end; ++e) {
      if (!in.active[e]) continue;
      has_any = true;
      Real* score = scores.data() + (e - begin) * heads;
      score_edge(in, e, i, in.edges.sender[e], rows.gates, rows.product, score);
      std::copy_n(rows.gates + heads, heads, gates.data() + (e - begin) * heads);
      for (std::int64_t h = 0; h < heads; ++h) largest[h] = std::max(largest[h], score[h]);
    }
    if (!has_any) std::fill(largest, largest + heads, Real(0));
    for (std::int64_t h = 0; h < heads; ++h) {
      ties[h] = 0;
      normalizer[h] = Real(kNormalizerFloor) * (in.is_smooth ? std::exp(-in.shift(largest[h])) : Real(1));
    }
    std::fill(out, out + size, Real(0));
    for (auto e = begin; e < end; ++e) {
      if (!in.active[e]) continue;
      const Real *score = scores.data() + (e - begin) * heads, *gate = gates.data() + (e - begin) * heads;
      for (std::int64_t h = 0; h < heads; ++h) {
        const Real weight = std::exp(score[h] - in.shift(largest[h])) * in.envelope[e];
        ties[h] += score[h] == largest[h];
        normalizer[h] += weight;
        rows.weight[h] = weight * gate[h];
      }
      for (std::int64_t a = 0; a < in.moments; ++a) {
        const Real factor = in.factor[e * in.moments + a];
        for (std::int64_t h = 0; h < heads; ++h) rows.sent[h] = rows.weight[h] * factor;
        add_planes(rows.sent, in.value_of(in.edges.sender[e]), in.values, heads, out + a * in.values * heads);
      }
    }
    for (std::int64_t plane = 0; plane < in.moments * in.values; ++plane) {
      for (std::int64_t h = 0; h < heads; ++h) out[plane * heads + h] /= normalizer[h];
    }
  }
}

/// Derivatives at edge e: rows.weight becomes alpha, rows.sent the derivative by the score, output_gate_grad (if any)
/// that by the output gate; rows.dot is the derivative by alpha. Returns the derivative by the envelope.
template <typename Real>
TESSERA_KERNEL Real weigh(const EdgeAttention<Real>& in, std::int64_t e, std::int64_t i, const Real* delta,
                          EdgeRows<Real>& rows, Real* output_gate_grad)
{
  const auto heads = in.heads;
  const Real *largest = in.state + 3 * i * heads, *normalizer = largest + heads, *ties = normalizer + heads;
  Real by_envelope = 0;
  for (std::int64_t h = 0; h < heads; ++h) {
    const Real relative = std::exp(rows.score[h] - in.shift(largest[h])) / normalizer[h];
    const Real weight = relative * in.envelope[e], gate = rows.gates[heads + h];
    const Real excess = gate * rows.dot[h] - delta[h];
    by_envelope += relative * excess;
    Real by_score = weight * excess;
    if (!in.is_smooth && rows.score[h] == largest[h]) {
      by_score -= delta[h] * Real(kNormalizerFloor) / (normalizer[h] * ties[h]);
    }
    if (output_gate_grad) output_gate_grad[h] = weight * rows.dot[h];
    rows.weight[h] = weight * gate;
    rows.sent[h] = by_score;
  }
  return by_envelope;
}

/// What receivers first..last-1 and their edges get: query, gates or fraction, envelope, factor; and delta.
template <typename Real, Score<Real> score_edge>
TESSERA_KERNEL void receiver_rows(const EdgeAttention<Real>& in, const AttentionGradients<Real>& out,
                                  std::int64_t first, std::int64_t last)
{
  const auto heads = in.heads, plane_size = in.values * heads, size = in.moments * plane_size;
  EdgeRows<Real> rows(heads);
  std::vector<Real> moment_dots(in.moments * heads), gate_grad(2 * heads);
  for (auto i = first; i < last; ++i) {
    const Real* grad = in.grad + i * size;
    Real* query_grad = out.query + i * in.scalars * heads;
    std::fill(query_grad, query_grad + in.scalars * heads, Real(0));
    dot_planes(grad, in.message + i * size, in.moments * in.values, heads, out.delta + i * heads);
    for (auto e = in.edges.receiver_range[2 * i]; e < in.edges.receiver_range[2 * i + 1]; ++e) {
      Real* gates_out = out.gates ? out.gates + e * 2 * heads : gate_grad.data();
      if (!in.active[e]) {
        out.envelope[e] = 0;
        std::fill_n(out.factor + e * in.moments, in.moments, Real(0));
        if (out.gates) std::fill_n(gates_out, 2 * heads, Real(0));
        if (out.fraction) out.fraction[e] = 0;
        continue;
      }
      const auto j = in.edges.sender[e];
      score_edge(in, e, i, j, rows.gates, rows.product, rows.score);
      std::fill_n(rows.dot, heads, Real(0));
      for (std::int64_t a = 0; a < in.moments; ++a) {
        Real* dot = moment_dots.data() + a * heads;
        dot_planes(grad + a * plane_size, in.value_of(j), in.values, heads, dot);
        const Real factor = in.factor[e * in.moments + a];
        for (std::int64_t h = 0; h < heads; ++h) rows.dot[h] += factor * dot[h];
      }
      out.envelope[e] = weigh(in, e, i, out.delta + i * heads, rows, gates_out + heads);
      for (std::int64_t a = 0; a < in.moments; ++a) {
        Real total = 0;
        for (std::int64_t h = 0; h < heads; ++h) total += rows.weight[h] * moment_dots[a * heads + h];
        out.factor[e * in.moments + a] = total;
      }
      for (std::int64_t h = 0; h < heads; ++h) {
        gates_out[h] = rows.sent[h] * rows.product[h];
        rows.sent[h] *= rows.gates[h];
      }
      add_planes(rows.sent, in.key_of(j), in.scalars, heads, query_grad);
      if (out.fraction) {
        mix_rows(spline_slopes(in.spline.fraction[e]), in.spline.table + in.spline.row[e] * 2 * heads, 2 * heads,
                 rows.slopes);
        Real total = 0;
        for (std::int64_t c = 0; c < 2 * heads; ++c) total += gates_out[c] * rows.slopes[c];
        out.fraction[e] = total;
      }
    }
  }
}

/// Payload gradients of senders first..last-1, after receiver_rows() of all receivers.
template <typename Real, Score<Real> score_edge>
TESSERA_KERNEL void sender_rows(const EdgeAttention<Real>& in, const AttentionGradients<Real>& out, std::int64_t first,
                                std::int64_t last)
{
  const auto heads = in.heads, plane_size = in.values * heads;
  EdgeRows<Real> rows(heads);
  std::vector<Real> mixed(plane_size);
  for (auto j = first; j < last; ++j) {
    Real *key_grad = out.payload + j * (in.scalars + in.values) * heads, *value_grad = key_grad + in.scalars * heads;
    std::fill_n(key_grad, (in.scalars + in.values) * heads, Real(0));
    for (auto p = in.edges.sender_range[2 * j]; p < in.edges.sender_range[2 * j + 1]; ++p) {
      const auto e = in.edges.sender_order[p];
      if (!in.active[e]) continue;
      const auto i = in.edges.receiver[e];
      const Real *grad = in.grad + i * in.moments * plane_size, *factor = in.factor + e * in.moments;
      if (in.moments > 1) {  // the moments' gradients act on a value through one sum
        std::fill(mixed.begin(), mixed.end(), Real(0));
        for (std::int64_t a = 0; a < in.moments; ++a) {
#pragma omp simd
          for (std::int64_t c = 0; c < plane_size; ++c) mixed[c] += factor[a] * grad[a * plane_size + c];
        }
        grad = mixed.data();
      }
      const Real scale = in.moments > 1 ? Real(1) : factor[0];
      score_edge(in, e, i, j, rows.gates, rows.product, rows.score);
      dot_planes(grad, in.value_of(j), in.values, heads, rows.dot);
      for (std::int64_t h = 0; h < heads; ++h) rows.dot[h] *= scale;
      weigh(in, e, i, out.delta + i * heads, rows, static_cast<Real*>(nullptr));
      for (std::int64_t h = 0; h < heads; ++h) {
        rows.weight[h] *= scale;
        rows.sent[h] *= rows.gates[h];
      }
      add_planes(rows.weight, grad, in.values, heads, value_grad);
      add_planes(rows.sent, in.query + i * in.scalars * heads, in.scalars, heads, key_grad);
    }
  }
}

}  // namespace tessera::operators
