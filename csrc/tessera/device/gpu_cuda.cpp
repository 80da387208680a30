// SPDX-License-Identifier: MIT
#include <cuda_runtime.h>

#include "tessera/base/error.hpp"
#include "tessera/device/gpu.hpp"

namespace tessera {

bool has_cuda() noexcept { return true; }

int num_gpus() noexcept
{
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();  // no driver or no device: the answer is 0, and the next call shall not inherit this error
  return 0;
}

std::string gpu_name(int device)
{
  cudaDeviceProp properties{};
  TESSERA_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

std::string gpu_capability(int device)
{
  int major = 0, minor = 0;
  TESSERA_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  TESSERA_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return format("{}.{}", major, minor);
}

void check_cuda(int code, const char* what)
{
  const auto error = static_cast<cudaError_t>(code);
  TESSERA_REQUIRE(error == cudaSuccess,
                  "CUDA: {} failed with {} ({}); compute-sanitizer finds the cause of a bad access", what,
                  cudaGetErrorName(error), cudaGetErrorString(error));
}

}  // namespace tessera
