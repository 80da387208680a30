// SPDX-License-Identifier: MIT
// The operators' GPU kernels in a build without CUDA: every name throws. gpu_*.cu and gpu_stream.cpp take this file's
// place with -DTESSERA_CUDA=ON.
#include "tessera/base/error.hpp"
#include "tessera/model/gpu_kernels.hpp"
#include "tessera/model/operator_support.hpp"
#include "tessera/model/torch_stream.hpp"

namespace tessera::operators {
namespace {

[[noreturn]] void refuse()
{
  fail(Reach::rank,
       "expected tensors on the CPU, which is all this build runs, found some on a CUDA device; rebuild with "
       "-DTESSERA_CUDA=ON or move them with .cpu()");
}

}  // namespace

CUstream_st* stream_of(const at::Tensor& /*tensor*/) { refuse(); }

namespace gpu {

#define TESSERA_REFUSE(name, Arguments, Output)     \
  template <typename Real>                          \
  void name(const Arguments<Real>&, Output, Stream) \
  {                                                 \
    refuse();                                       \
  }
#define TESSERA_REFUSE_EACH(name, Arguments)                   \
  TESSERA_REFUSE(name, Arguments, Real*)                       \
  template void name(const Arguments<float>&, float*, Stream); \
  template void name(const Arguments<double>&, double*, Stream);

TESSERA_REFUSE_EACH(sum, Segments)
TESSERA_REFUSE_EACH(max, Segments)
TESSERA_REFUSE_EACH(max_backward, MaxGradient)
TESSERA_REFUSE_EACH(scores, EdgeDot)
TESSERA_REFUSE_EACH(query_gradient, EdgeDot)
TESSERA_REFUSE_EACH(key_gradient, EdgeDot)
TESSERA_REFUSE_EACH(weighted_sum, WeightedSum)
TESSERA_REFUSE_EACH(weight_gradient, WeightedSum)
TESSERA_REFUSE_EACH(value_gradient, WeightedSum)

TESSERA_REFUSE(nearest_edges, NearestEdges, bool*)
template void nearest_edges(const NearestEdges<float>&, bool*, Stream);
template void nearest_edges(const NearestEdges<double>&, bool*, Stream);
TESSERA_REFUSE(differentiate, Triple, const Derivatives<Real>&)
template void differentiate(const Triple<float>&, const Derivatives<float>&, Stream);
template void differentiate(const Triple<double>&, const Derivatives<double>&, Stream);

}  // namespace gpu
}  // namespace tessera::operators

namespace tessera {

struct TorchStreamScope::Impl {};
TorchStreamScope::TorchStreamScope(StreamRef stream)
{
  if (stream.is_gpu()) operators::refuse();
}
TorchStreamScope::~TorchStreamScope() = default;

struct CapturedGraph::Impl {};
CapturedGraph::CapturedGraph() = default;
CapturedGraph::~CapturedGraph() = default;
void CapturedGraph::capture(StreamRef /*stream*/, const std::function<void()>& /*body*/) { operators::refuse(); }
void CapturedGraph::replay() { operators::refuse(); }
void CapturedGraph::reset() {}
bool CapturedGraph::is_captured() const noexcept { return false; }

std::size_t peak_bytes(Device /*device*/) { return 0; }
std::size_t num_out_of_memory(Device /*device*/) { return 0; }
void release_cached_memory(Device /*device*/) {}

}  // namespace tessera
