// SPDX-License-Identifier: MIT
#pragma once

// Loops, scans and sorts that run on the host or are queued on a GPU's stream, from one source.
//
// A .cu file that includes this is compiled by nvcc in a build with CUDA, and as plain C++ (host only) in one without:
// what the tests see on the host is what the GPU runs.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/device/device_array.hpp"
#include "tessera/device/gpu.hpp"

#ifdef __CUDACC__
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
/// Begins a lambda that captures by value (pointers and numbers, no containers).
#define TESSERA_LAMBDA [=] __host__ __device__
#define TESSERA_HOST_DEVICE __host__ __device__
#else
#define TESSERA_LAMBDA [=]
#define TESSERA_HOST_DEVICE
#endif

namespace tessera::parallel {

/// Memory that scans and sorts work in; grows, so run once before capturing a graph.
using Scratch = DeviceArray<std::byte>;

[[noreturn]] inline void refuse_gpu()
{
  fail(Reach::rank, "expected a build with CUDA for work on a GPU, found one without; rebuild with -DTESSERA_CUDA=ON");
}

#ifdef __CUDACC__
namespace gpu {

template <typename Body>
__global__ void run(std::int64_t count, Body body)
{
  const auto item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (item < count) body(item);
}

}  // namespace gpu
#endif

/// body(k) for k in [0, count), in any order or at once: no two may write one place.
template <typename Body>
void for_each(StreamRef stream, std::int64_t count, Body body)
{
  if (count <= 0) return;
  if (!stream.is_gpu()) {
    for (std::int64_t k = 0; k < count; ++k) body(k);
    return;
  }
#ifdef __CUDACC__
  constexpr int kBlock = 256;
  gpu::run<<<static_cast<unsigned>((count + kBlock - 1) / kBlock), kBlock, 0, stream.handle>>>(count, body);
  check_cuda(cudaGetLastError(), "parallel::for_each");
#else
  refuse_gpu();
#endif
}

/// out[k] = sum of in[0 .. k); `out` may not be `in`.
template <typename In, typename Out>
void exclusive_scan(StreamRef stream, const In* in, Out* out, std::int64_t count, Scratch& scratch)
{
  if (count <= 0) return;
  if (!stream.is_gpu()) {
    std::exclusive_scan(in, in + count, out, Out{0});
    return;
  }
#ifdef __CUDACC__
  std::size_t bytes = 0;
  TESSERA_CUDA_CHECK(
      cub::DeviceScan::ExclusiveScan(nullptr, bytes, in, out, cuda::std::plus<Out>{}, Out{0}, count, stream.handle));
  scratch.resize(static_cast<std::int64_t>(bytes));
  TESSERA_CUDA_CHECK(cub::DeviceScan::ExclusiveScan(scratch.data(), bytes, in, out, cuda::std::plus<Out>{}, Out{0},
                                                    count, stream.handle));
#else
  (void)scratch;
  refuse_gpu();
#endif
}

/// Sorts values by unsigned keys of which only the lowest `key_bits` may differ; equal keys keep their order.
template <typename Key, typename Value>
void sort_by_key(StreamRef stream, const Key* keys, Key* sorted_keys, const Value* values, Value* sorted_values,
                 std::int64_t count, int key_bits, Scratch& scratch)
{
  static_assert(std::is_unsigned_v<Key>);
  if (count <= 0) return;
  if (!stream.is_gpu()) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return keys[a] < keys[b]; });
    for (std::int64_t k = 0; k < count; ++k) {
      sorted_keys[k] = keys[order[k]];
      sorted_values[k] = values[order[k]];
    }
    return;
  }
#ifdef __CUDACC__
  std::size_t bytes = 0;
  TESSERA_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, sorted_keys, values, sorted_values, count, 0,
                                                     key_bits, stream.handle));
  scratch.resize(static_cast<std::int64_t>(bytes));
  TESSERA_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(scratch.data(), bytes, keys, sorted_keys, values, sorted_values,
                                                     count, 0, key_bits, stream.handle));
#else
  (void)key_bits;
  (void)scratch;
  refuse_gpu();
#endif
}

struct Sum {
  static constexpr double kOfNone = 0;
  TESSERA_HOST_DEVICE double operator()(double a, double b) const { return a + b; }
};

/// Of values that are not negative.
struct Largest {
  static constexpr double kOfNone = 0;
  TESSERA_HOST_DEVICE double operator()(double a, double b) const { return a < b ? b : a; }
};

/// out[c] = all of in[:, c] of `in` [count, width] in one, in a fixed order: pairs of levels of 64 terms each.
template <typename Combine>
void fold_columns(StreamRef stream, const double* in, std::int64_t count, std::int64_t width, double* out,
                  DeviceArray<double>& partial, Combine combine)
{
  constexpr std::int64_t kTerms = 64;
  const auto groups_of = [](std::int64_t n) { return (n + kTerms - 1) / kTerms; };
  std::int64_t room = 0;
  for (std::int64_t n = groups_of(count); n > 1; n = groups_of(n)) room += n * width;
  double* next = partial.resize(std::max<std::int64_t>(1, room));
  const double* source = in;
  std::int64_t num_terms = count;
  do {
    const std::int64_t num_groups = std::max<std::int64_t>(1, groups_of(num_terms));
    double* target = num_groups == 1 ? out : next;
    const double* terms = source;
    const std::int64_t last = num_terms;
    for_each(
        stream, num_groups * width, TESSERA_LAMBDA(std::int64_t item) {
          const std::int64_t group = item / width, c = item % width;
          double folded = Combine::kOfNone;
          for (std::int64_t k = group * kTerms; k < last && k < (group + 1) * kTerms; ++k) {
            folded = combine(folded, terms[k * width + c]);
          }
          target[item] = folded;
        });
    source = target;
    num_terms = num_groups;
    next += num_groups * width;
  } while (source != out);
}

/// out[c] = sum over k of in[k, c] of `in` [count, width], in the order of fold_columns().
inline void sum_columns(StreamRef stream, const double* in, std::int64_t count, std::int64_t width, double* out,
                        DeviceArray<double>& partial)
{
  fold_columns(stream, in, count, width, out, partial, Sum{});
}

/// out[c] = the largest of in[:, c] of `in` [count, width], none of them negative; 0 if there are none.
inline void max_columns(StreamRef stream, const double* in, std::int64_t count, std::int64_t width, double* out,
                        DeviceArray<double>& partial)
{
  fold_columns(stream, in, count, width, out, partial, Largest{});
}

}  // namespace tessera::parallel
