// SPDX-License-Identifier: MIT
// Edge attention in one pass: scores, softmax and the weighted sum of the senders' values, with gates that are given or
// that splines of the distance give. On the CPU; a GPU runs the Triton kernels of the same meaning.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <tuple>

#include "tessera/base/error.hpp"
#include "tessera/model/attention_rows.hpp"
#include "tessera/model/edge_arguments.hpp"

namespace tessera::operators {
namespace {

// Not inlined, so that all passes see the same bits of a score: the largest is found again by equality.
#define TESSERA_ATTENTION(Real)                                                                                    \
  TESSERA_MULTIVERSION __attribute__((noinline)) void score(const EdgeAttention<Real>& in, std::int64_t e,         \
                                                            std::int64_t i, std::int64_t j, Real* gates,           \
                                                            Real* product, Real* out)                              \
  {                                                                                                                \
    score_body(in, e, i, j, gates, product, out);                                                                  \
  }                                                                                                                \
  TESSERA_MULTIVERSION void forward(const EdgeAttention<Real>& in, Real* message, Real* state, std::int64_t first, \
                                    std::int64_t last)                                                             \
  {                                                                                                                \
    forward_rows<Real, score>(in, message, state, first, last);                                                    \
  }                                                                                                                \
  TESSERA_MULTIVERSION void by_receiver(const EdgeAttention<Real>& in, const AttentionGradients<Real>& out,        \
                                        std::int64_t first, std::int64_t last)                                     \
  {                                                                                                                \
    receiver_rows<Real, score>(in, out, first, last);                                                              \
  }                                                                                                                \
  TESSERA_MULTIVERSION void by_sender(const EdgeAttention<Real>& in, const AttentionGradients<Real>& out,          \
                                      std::int64_t first, std::int64_t last)                                       \
  {                                                                                                                \
    sender_rows<Real, score>(in, out, first, last);                                                                \
  }
TESSERA_ATTENTION(float)
TESSERA_ATTENTION(double)
#undef TESSERA_ATTENTION

/// The tensors of one call; `gates` are [E, 2, heads], or a table [T, 2, heads] with `row` and `fraction`.
struct Call {
  const char* op;
  const at::Tensor &query, &payload, &gates;
  const at::Tensor *row, *fraction;  // nullptr: the gates are given
  const at::Tensor &envelope, &factor, &active;
  EdgeArrays edges;
  bool is_smooth;

  [[nodiscard]] std::int64_t num_values() const { return payload.size(1) - query.size(1); }
};

void check(const Call& call)
{
  const auto num_edges = call.envelope.size(0);
  const auto type = require_floating(call.op, "query", call.query, {call.edges.num_receivers, kAny, kAny});
  const auto heads = call.query.size(2);
  require(call.op, "payload", call.payload, type, {call.edges.num_senders, kAny, heads});
  if (call.row == nullptr) {
    require(call.op, "gates", call.gates, type, {num_edges, 2, heads});
  } else {
    require(call.op, "table", call.gates, type, {kAny, 2, heads});
    require(call.op, "row", *call.row, at::kLong, {num_edges});
    require(call.op, "fraction", *call.fraction, type, {num_edges});
  }
  require(call.op, "envelope", call.envelope, type, {num_edges});
  require(call.op, "factor", call.factor, type, {num_edges, kAny});
  require(call.op, "active", call.active, at::kBool, {num_edges});
  TESSERA_REQUIRE(call.num_values() >= 0, "{}: expected at least the {} planes of the query in the payload, found {}",
                  call.op, call.query.size(1), call.payload.size(1));
}

template <typename Real>
EdgeAttention<Real> arguments(const Call& call)
{
  EdgeAttention<Real> in{};
  in.edges = call.edges;
  in.query = call.query.const_data_ptr<Real>();
  in.payload = call.payload.const_data_ptr<Real>();
  if (call.row == nullptr) {
    in.gates = call.gates.const_data_ptr<Real>();
  } else {
    in.spline = {call.gates.const_data_ptr<Real>(), call.row->const_data_ptr<std::int64_t>(),
                 call.fraction->const_data_ptr<Real>(), 2 * call.query.size(2)};
  }
  in.envelope = call.envelope.const_data_ptr<Real>();
  in.factor = call.factor.const_data_ptr<Real>();
  in.active = call.active.const_data_ptr<bool>();
  in.scalars = call.query.size(1);
  in.values = call.num_values();
  in.moments = call.factor.size(1);
  in.heads = call.query.size(2);
  in.is_smooth = call.is_smooth;
  return in;
}

template <typename Real>
std::int64_t work(const EdgeAttention<Real>& in, std::int64_t num_rows)
{
  return work_per_row(in.edges.num_edges, num_rows, in.heads * (in.scalars + in.values * in.moments + 12));
}

std::tuple<at::Tensor, at::Tensor> run_forward(const Call& call)
{
  check(call);
  const auto num_rows = call.query.size(0), heads = call.query.size(2);
  auto message = at::empty({num_rows, call.factor.size(1), call.num_values(), heads}, call.query.options());
  auto state = at::empty({num_rows, 3, heads}, call.query.options());
  dispatch(call.query.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    const auto in = arguments<Real>(call);
    auto *out = message.mutable_data_ptr<Real>(), *kept = state.mutable_data_ptr<Real>();
    for_rows(num_rows, work(in, num_rows), [&](auto first, auto last) { forward(in, out, kept, first, last); });
  });
  return {message, state};
}

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// Gradients of query, payload, gates (or fraction), envelope and factor.
Gradients run_backward(const Call& call, const at::Tensor& grad, const at::Tensor& message, const at::Tensor& state)
{
  check(call);
  const auto num_rows = call.query.size(0), heads = call.query.size(2);
  const auto type = call.query.scalar_type();
  require(call.op, "grad", grad, type, {num_rows, call.factor.size(1), call.num_values(), heads});
  require(call.op, "message", message, type, {num_rows, call.factor.size(1), call.num_values(), heads});
  require(call.op, "state", state, type, {num_rows, 3, heads});
  auto query = at::empty_like(call.query), payload = at::empty_like(call.payload);
  auto gates = at::empty_like(call.row == nullptr ? call.gates : *call.fraction);
  auto envelope = at::empty_like(call.envelope), factor = at::empty_like(call.factor);
  auto delta = at::empty({num_rows, heads}, call.query.options());
  dispatch(type, [&](auto zero) {
    using Real = decltype(zero);
    auto in = arguments<Real>(call);
    in.grad = grad.const_data_ptr<Real>();
    in.message = message.const_data_ptr<Real>();
    in.state = state.const_data_ptr<Real>();
    auto* by_gates = gates.mutable_data_ptr<Real>();
    const bool is_given = call.row == nullptr;
    const AttentionGradients<Real> out{query.mutable_data_ptr<Real>(),    payload.mutable_data_ptr<Real>(),
                                       is_given ? by_gates : nullptr,     is_given ? nullptr : by_gates,
                                       envelope.mutable_data_ptr<Real>(), factor.mutable_data_ptr<Real>(),
                                       delta.mutable_data_ptr<Real>()};
    for_rows(num_rows, 2 * work(in, num_rows), [&](auto first, auto last) { by_receiver(in, out, first, last); });
    const auto num_senders = in.edges.num_senders;
    for_rows(num_senders, 2 * work(in, num_senders), [&](auto first, auto last) { by_sender(in, out, first, last); });
  });
  return {query, payload, gates, envelope, factor};
}

std::tuple<at::Tensor, at::Tensor> edge_attention(const at::Tensor& query, const at::Tensor& payload,
                                                  const at::Tensor& gates, const at::Tensor& envelope,
                                                  const at::Tensor& factor, const at::Tensor& active,
                                                  const at::Tensor& receiver, const at::Tensor& sender,
                                                  const at::Tensor& receiver_range, const at::Tensor& sender_order,
                                                  const at::Tensor& sender_range, bool is_smooth)
{
  const char* op = "edge_attention";
  return run_forward({op, query, payload, gates, nullptr, nullptr, envelope, factor, active,
                      edge_arrays(op, receiver, sender, receiver_range, sender_order, sender_range, envelope.size(0),
                                  query.size(0), payload.size(0)),
                      is_smooth});
}

Gradients edge_attention_backward(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& payload,
                                  const at::Tensor& gates, const at::Tensor& envelope, const at::Tensor& factor,
                                  const at::Tensor& active, const at::Tensor& message, const at::Tensor& state,
                                  const at::Tensor& receiver, const at::Tensor& sender,
                                  const at::Tensor& receiver_range, const at::Tensor& sender_order,
                                  const at::Tensor& sender_range, bool is_smooth)
{
  const char* op = "edge_attention_backward";
  return run_backward({op, query, payload, gates, nullptr, nullptr, envelope, factor, active,
                       edge_arrays(op, receiver, sender, receiver_range, sender_order, sender_range, envelope.size(0),
                                   query.size(0), payload.size(0)),
                       is_smooth},
                      grad, message, state);
}

std::tuple<at::Tensor, at::Tensor> table_attention(const at::Tensor& query, const at::Tensor& payload,
                                                   const at::Tensor& table, const at::Tensor& row,
                                                   const at::Tensor& fraction, const at::Tensor& envelope,
                                                   const at::Tensor& factor, const at::Tensor& active,
                                                   const at::Tensor& receiver, const at::Tensor& sender,
                                                   const at::Tensor& receiver_range, const at::Tensor& sender_order,
                                                   const at::Tensor& sender_range, bool is_smooth)
{
  const char* op = "table_attention";
  return run_forward({op, query, payload, table, &row, &fraction, envelope, factor, active,
                      edge_arrays(op, receiver, sender, receiver_range, sender_order, sender_range, envelope.size(0),
                                  query.size(0), payload.size(0)),
                      is_smooth});
}

Gradients table_attention_backward(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& payload,
                                   const at::Tensor& table, const at::Tensor& row, const at::Tensor& fraction,
                                   const at::Tensor& envelope, const at::Tensor& factor, const at::Tensor& active,
                                   const at::Tensor& message, const at::Tensor& state, const at::Tensor& receiver,
                                   const at::Tensor& sender, const at::Tensor& receiver_range,
                                   const at::Tensor& sender_order, const at::Tensor& sender_range, bool is_smooth)
{
  const char* op = "table_attention_backward";
  return run_backward({op, query, payload, table, &row, &fraction, envelope, factor, active,
                       edge_arrays(op, receiver, sender, receiver_range, sender_order, sender_range, envelope.size(0),
                                   query.size(0), payload.size(0)),
                       is_smooth},
                      grad, message, state);
}

}  // namespace

TORCH_LIBRARY_IMPL(tessera, CPU, m)
{
  m.impl("edge_attention", &Recorded<&edge_attention>::call);
  m.impl("edge_attention_backward", &Recorded<&edge_attention_backward>::call);
  m.impl("table_attention", &Recorded<&table_attention>::call);
  m.impl("table_attention_backward", &Recorded<&table_attention_backward>::call);
}

}  // namespace tessera::operators
