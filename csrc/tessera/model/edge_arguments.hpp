// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/model/kernel_arguments.hpp"
#include "tessera/model/operator_support.hpp"

namespace tessera::operators {

/// @throws Error(rank) naming `op` unless the five arrays belong to `num_edges` edges from `num_senders` rows.
inline EdgeArrays edge_arrays(const char* op, const at::Tensor& receiver, const at::Tensor& sender,
                              const at::Tensor& receiver_range, const at::Tensor& sender_order,
                              const at::Tensor& sender_range, std::int64_t num_edges, std::int64_t num_receivers,
                              std::int64_t num_senders)
{
  require(op, "receiver", receiver, at::kLong, {num_edges});
  require(op, "sender", sender, at::kLong, {num_edges});
  require(op, "receiver_range", receiver_range, at::kLong, {num_receivers, 2});
  require(op, "sender_order", sender_order, at::kLong, {num_edges});
  require(op, "sender_range", sender_range, at::kLong, {num_senders, 2});
  return {receiver.const_data_ptr<std::int64_t>(),
          sender.const_data_ptr<std::int64_t>(),
          receiver_range.const_data_ptr<std::int64_t>(),
          sender_order.const_data_ptr<std::int64_t>(),
          sender_range.const_data_ptr<std::int64_t>(),
          num_edges,
          num_receivers,
          num_senders};
}

}  // namespace tessera::operators
