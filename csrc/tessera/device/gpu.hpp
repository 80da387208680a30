// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace tessera {

/// Whether this library was compiled with -DTESSERA_CUDA=ON.
[[nodiscard]] bool has_cuda() noexcept;

/// CUDA devices that this process sees; 0 without a driver, and in a build without CUDA.
[[nodiscard]] int num_gpus() noexcept;

/// Name as the driver says it. @throws Error(rank) if there is no such device.
[[nodiscard]] std::string gpu_name(int device);

/// Compute capability, "9.0". @throws Error(rank) if there is no such device.
[[nodiscard]] std::string gpu_capability(int device);

/// Where the GPU sits in its host, "0000:1b:00.0": the same for every process there. @throws Error(rank) as above.
[[nodiscard]] std::string gpu_bus_id(int device);

/// @throws Error(rank) with the code's name and `what` was called, unless `code` (a cudaError_t) is success.
void check_cuda(int code, const char* what);

}  // namespace tessera

/// Checks the return code of a call of the CUDA runtime.
#define TESSERA_CUDA_CHECK(call) ::tessera::check_cuda(static_cast<int>(call), #call)
