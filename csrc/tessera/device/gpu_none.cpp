// SPDX-License-Identifier: MIT
// A build without CUDA: there is no device. gpu_cuda.cpp takes this file's place with -DTESSERA_CUDA=ON.
#include "tessera/base/error.hpp"
#include "tessera/device/gpu.hpp"

namespace tessera {
namespace {

[[noreturn]] void refuse(const char* what)
{
  fail(Reach::rank, "{}: expected a build with CUDA, found one without; rebuild with -DTESSERA_CUDA=ON", what);
}

}  // namespace

bool has_cuda() noexcept { return false; }
int num_gpus() noexcept { return 0; }
std::string gpu_name(int /*device*/) { refuse("gpu_name"); }
std::string gpu_capability(int /*device*/) { refuse("gpu_capability"); }
void check_cuda(int /*code*/, const char* what) { refuse(what); }

}  // namespace tessera
