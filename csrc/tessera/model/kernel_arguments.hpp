// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

// What the kernels of the operators read: plain pointers to contiguous arrays, on the host or on a device.
// N owned rows (receivers), M extended rows (senders), E edges; shapes as in ARCHITECTURE.md, Operators.
namespace tessera::operators {

/// The index arrays of one list; made and checked by edge_arrays().
struct EdgeArrays {
  const std::int64_t* receiver;        // [E]
  const std::int64_t* sender;          // [E]
  const std::int64_t* receiver_range;  // [N, 2]
  const std::int64_t* sender_order;    // [E]
  const std::int64_t* sender_range;    // [M, 2]
  std::int64_t num_edges, num_receivers, num_senders;
};

template <typename Real>
struct Segments {
  const Real* values;         // [E, width]
  const bool* active;         // [E]
  const std::int64_t* range;  // [N, 2]
  std::int64_t width, num_rows;
};

template <typename Real>
struct MaxGradient {
  Segments<Real> in;
  const Real* maximum;  // [N, width]
  const Real* grad;     // [N, width]
};

template <typename Real>
struct NearestEdges {
  const Real* distance;       // [E]
  const bool* active;         // [E]
  const std::int64_t* range;  // [N, 2]
  std::int64_t count, num_rows;
};

template <typename Real>
struct EdgeDot {
  EdgeArrays edges;
  const Real* query;  // [N, heads, width]
  const Real* key;    // [M, heads, width]
  const Real* grad;   // [E, heads], backward only
  std::int64_t heads, width;
};

template <typename Real>
struct WeightedSum {
  EdgeArrays edges;
  const Real* weights;  // [E, moments, heads]
  const Real* values;   // [M, rows, channels]
  const Real* grad;     // [N, moments, rows, channels], backward only
  std::int64_t moments, heads, rows, channels;
};

/// The three arrays of the trilinear form sum_e sum_r sum_c harmonics . radial . features; a kernel reads two and
/// writes the third, or reads all.
template <typename Real>
struct Triple {
  const Real* harmonics;               // [E, rows]
  const Real* radial;                  // [E, degrees, channels]
  const Real* features;                // [N, rows, channels]
  const std::int64_t* receiver;        // [E]
  const std::int64_t* receiver_range;  // [N, 2]
  std::int64_t rows, degrees, channels, num_edges, num_rows;
};

/// Which derivatives of the trilinear form to write; nullptr: not that one. features starts from zero.
template <typename Real>
struct Derivatives {
  Real* harmonics = nullptr;
  Real* radial = nullptr;
  Real* features = nullptr;
};

}  // namespace tessera::operators
