// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

/// Compiles a kernel for the baseline and for AVX2 + FMA; the loader picks one when the library is loaded.
#if defined(__x86_64__) && defined(__GNUC__)
#define TESSERA_MULTIVERSION __attribute__((target_clones("arch=haswell", "default")))
#else
#define TESSERA_MULTIVERSION
#endif
/// A kernel body: inlined into each version of its caller, so that it takes that version's instructions.
#define TESSERA_KERNEL inline __attribute__((always_inline))

struct CUstream_st;

namespace tessera::operators {

/// Stands for an extent that may have any value.
inline constexpr std::int64_t kAny = -1;

/// Device of the operator that runs on this thread: that of its first argument. The CPU outside of operators.
[[nodiscard]] at::Device operator_device() noexcept;

/// @throws Error(rank) naming operator, argument, expected and found, unless `tensor` is a contiguous tensor of this
/// type and these extents on operator_device().
void require(const char* op, const char* name, const at::Tensor& tensor, at::ScalarType type,
             std::initializer_list<std::int64_t> extents);

/// The same on a device of its own choice.
void require_on(at::Device device, const char* op, const char* name, const at::Tensor& tensor, at::ScalarType type,
                std::initializer_list<std::int64_t> extents);

/// As require(), for float32 or float64; returns which.
at::ScalarType require_floating(const char* op, const char* name, const at::Tensor& tensor,
                                std::initializer_list<std::int64_t> extents);

/// Calls f(first, last) on disjoint ranges of rows, in parallel; `work` is the cost of one row in multiply-adds.
/// Every row is written by one thread alone, so the result does not depend on how many there are.
template <typename Function>
void for_rows(std::int64_t num_rows, std::int64_t work, const Function& f)
{
  constexpr std::int64_t kWorthAThread = 32768;  // below this, waking a thread costs more than it saves
  at::parallel_for(0, num_rows, std::max<std::int64_t>(1, kWorthAThread / std::max<std::int64_t>(1, work)), f);
}

/// Calls f with a zero of the C++ type that `type` names.
template <typename Function>
void dispatch(at::ScalarType type, const Function& f)
{
  type == at::kFloat ? f(float()) : f(double());
}

/// Mean multiply-adds of one row when all edges together cost num_edges * work_per_edge.
inline std::int64_t work_per_row(std::int64_t num_edges, std::int64_t num_rows, std::int64_t work_per_edge)
{
  return (num_edges / std::max<std::int64_t>(1, num_rows) + 1) * std::max<std::int64_t>(1, work_per_edge);
}

/// Keeps the text of a failing operator for take_error(): compiled code reports only that a call failed.
void remember_error(const char* text) noexcept;

/// The text of the last operator that failed on this thread, empty if none; forgets it.
[[nodiscard]] std::string take_error() noexcept;

/// Makes the device of an operator's first argument the current one, and operator_device(), until its end of scope.
class DeviceScope {
 public:
  explicit DeviceScope(const at::Tensor& first);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  at::Device before_;
  c10::DeviceGuard guard_;
};

/// The stream on which PyTorch works on the device of `tensor`, which must be a CUDA device.
[[nodiscard]] CUstream_st* stream_of(const at::Tensor& tensor);

template <auto function>
struct Recorded;

/// `function` on the device of its first argument, with its failures remembered.
template <typename Result, typename... Arguments, Result (*function)(const at::Tensor&, Arguments...)>
struct Recorded<function> {
  static Result call(const at::Tensor& first, Arguments... arguments)
  {
    try {
      const DeviceScope scope(first);
      return function(first, std::forward<Arguments>(arguments)...);
    } catch (const std::exception& error) {
      remember_error(error.what());
      throw;
    }
  }
};

}  // namespace tessera::operators
