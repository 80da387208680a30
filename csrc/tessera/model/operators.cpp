// SPDX-License-Identifier: MIT
// The operators that an artifact calls; shapes in ARCHITECTURE.md, gradients in python/tessera/ops.
// Compiled code lays its buffers out as it likes: the tag makes it hand over the strides that were traced.
#include <torch/library.h>

TORCH_LIBRARY(tessera, m)
{
  const std::vector<at::Tag> tags{at::Tag::needs_exact_strides};
  const auto define = [&](const char* schema) { m.def(schema, tags); };

  define("halo_start(Tensor payload, Tensor plan, Tensor halo, int list) -> Tensor");
  define("halo_wait(Tensor payload, Tensor ticket, Tensor plan, Tensor halo, int list) -> Tensor");
  define("halo_reverse_start(Tensor grad_extended, Tensor plan, Tensor halo, int list) -> Tensor");
  define("halo_reverse_wait(Tensor ticket, Tensor plan, Tensor owned, int channels, int list) -> Tensor");

  define("segment_sum(Tensor values, Tensor receiver, Tensor receiver_range) -> Tensor");
  define("segment_max(Tensor values, Tensor active, Tensor receiver_range) -> Tensor");
  define(
      "segment_max_backward(Tensor grad, Tensor values, Tensor active, Tensor maximum, Tensor receiver_range)"
      " -> Tensor");
  define("nearest_edges(Tensor distance, Tensor active, Tensor receiver_range, int count) -> Tensor");

  define(
      "edge_dot(Tensor query, Tensor key, Tensor receiver, Tensor sender, Tensor receiver_range,"
      " Tensor sender_order, Tensor sender_range) -> Tensor");
  define(
      "edge_dot_backward(Tensor grad, Tensor query, Tensor key, Tensor receiver, Tensor sender,"
      " Tensor receiver_range, Tensor sender_order, Tensor sender_range) -> (Tensor, Tensor)");
  define(
      "weighted_sum(Tensor weights, Tensor values, Tensor receiver, Tensor sender, Tensor receiver_range,"
      " Tensor sender_order, Tensor sender_range) -> Tensor");
  define(
      "weighted_sum_backward(Tensor grad, Tensor weights, Tensor values, Tensor receiver, Tensor sender,"
      " Tensor receiver_range, Tensor sender_order, Tensor sender_range) -> (Tensor, Tensor)");
  define("outer_sum(Tensor harmonics, Tensor radial, Tensor receiver, Tensor receiver_range) -> Tensor");
  define(
      "outer_sum_backward(Tensor grad, Tensor harmonics, Tensor radial, Tensor receiver, Tensor receiver_range)"
      " -> (Tensor, Tensor)");
  define("harmonic_dot(Tensor harmonics, Tensor features, Tensor receiver, Tensor receiver_range) -> Tensor");
  define(
      "harmonic_dot_backward(Tensor grad, Tensor harmonics, Tensor features, Tensor receiver,"
      " Tensor receiver_range) -> (Tensor, Tensor)");

  define(
      "edge_attention(Tensor query, Tensor payload, Tensor gates, Tensor envelope, Tensor factor, Tensor active,"
      " Tensor receiver, Tensor sender, Tensor receiver_range, Tensor sender_order, Tensor sender_range,"
      " bool is_smooth) -> (Tensor, Tensor)");
  define(
      "edge_attention_backward(Tensor grad, Tensor query, Tensor payload, Tensor gates, Tensor envelope,"
      " Tensor factor, Tensor active, Tensor message, Tensor state, Tensor receiver, Tensor sender,"
      " Tensor receiver_range, Tensor sender_order, Tensor sender_range, bool is_smooth)"
      " -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  define(
      "table_attention(Tensor query, Tensor payload, Tensor table, Tensor row, Tensor fraction, Tensor envelope,"
      " Tensor factor, Tensor active, Tensor receiver, Tensor sender, Tensor receiver_range, Tensor sender_order,"
      " Tensor sender_range, bool is_smooth) -> (Tensor, Tensor)");
  define(
      "table_attention_backward(Tensor grad, Tensor query, Tensor payload, Tensor table, Tensor row, Tensor fraction,"
      " Tensor envelope, Tensor factor, Tensor active, Tensor message, Tensor state, Tensor receiver, Tensor sender,"
      " Tensor receiver_range, Tensor sender_order, Tensor sender_range, bool is_smooth)"
      " -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  define(
      "table_sum(Tensor harmonics, Tensor table, Tensor row, Tensor fraction, Tensor scale, Tensor receiver_range)"
      " -> Tensor");
  define(
      "table_sum_backward(Tensor grad, Tensor harmonics, Tensor table, Tensor row, Tensor fraction, Tensor scale,"
      " Tensor receiver_range) -> (Tensor, Tensor, Tensor)");

  define("recompute_after(Tensor x, Tensor gradient) -> Tensor");
}
