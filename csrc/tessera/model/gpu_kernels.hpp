// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/model/kernel_arguments.hpp"

struct CUstream_st;

/// The operators' kernels on a CUDA device: the same arguments and results as on the CPU, float and double.
///
/// Each launches on `stream`, whose device must be the current one, and returns at once. All write every element of
/// their output without atomics and sum in edge order (CSR) or sender order (CSC), so results repeat bit for bit.
/// A build without CUDA has the same names, which throw.
/// @throws Error(rank) if a launch fails.
namespace tessera::operators::gpu {

using Stream = CUstream_st*;

template <typename Real>
void sum(const Segments<Real>& in, Real* out, Stream stream);  // out [N, width]
template <typename Real>
void max(const Segments<Real>& in, Real* out, Stream stream);  // out [N, width]
template <typename Real>
void max_backward(const MaxGradient<Real>& g, Real* out, Stream stream);  // out [E, width]
template <typename Real>
void nearest_edges(const NearestEdges<Real>& in, bool* out, Stream stream);  // out [E]

template <typename Real>
void scores(const EdgeDot<Real>& in, Real* out, Stream stream);  // out [E, heads]
template <typename Real>
void query_gradient(const EdgeDot<Real>& in, Real* out, Stream stream);  // out [N, heads, width]
template <typename Real>
void key_gradient(const EdgeDot<Real>& in, Real* out, Stream stream);  // out [M, heads, width]

template <typename Real>
void weighted_sum(const WeightedSum<Real>& in, Real* out, Stream stream);  // out [N, moments, rows, channels]
template <typename Real>
void weight_gradient(const WeightedSum<Real>& in, Real* out, Stream stream);  // out [E, moments, heads]
template <typename Real>
void value_gradient(const WeightedSum<Real>& in, Real* out, Stream stream);  // out [M, rows, channels]

template <typename Real>
void differentiate(const Triple<Real>& in, const Derivatives<Real>& out, Stream stream);

}  // namespace tessera::operators::gpu
