// SPDX-License-Identifier: MIT
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "tessera/base/error.hpp"
#include "tessera/device/memory.hpp"
#include "tessera/model/operator_support.hpp"
#include "tessera/model/torch_stream.hpp"

namespace tessera {

namespace operators {

CUstream_st* stream_of(const at::Tensor& tensor)
{
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

}  // namespace operators

struct TorchStreamScope::Impl {
  c10::cuda::CUDAStreamGuard guard;
};

TorchStreamScope::TorchStreamScope(StreamRef stream)
{
  if (!stream.is_gpu()) return;
  const auto index = static_cast<c10::DeviceIndex>(stream.device.gpu);
  impl_.reset(new Impl{c10::cuda::CUDAStreamGuard(c10::cuda::getStreamFromExternal(stream.handle, index))});
}

TorchStreamScope::~TorchStreamScope() = default;

struct CapturedGraph::Impl {
  at::cuda::CUDAGraph graph;
};

CapturedGraph::CapturedGraph() = default;
CapturedGraph::~CapturedGraph() = default;

void CapturedGraph::capture(StreamRef stream, const std::function<void()>& body)
{
  impl_.reset();
  TESSERA_REQUIRE(stream.is_gpu() && stream.handle != nullptr, "a graph is captured on a GPU's own stream");
  auto next = std::make_unique<Impl>();
  next->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  try {
    body();
  } catch (...) {
    try {
      next->graph.capture_end();  // or the stream stays in capture
    } catch (const std::exception&) {
    }
    (void)cudaGetLastError();
    throw;
  }
  next->graph.capture_end();
  impl_ = std::move(next);
}

void CapturedGraph::replay()
{
  TESSERA_REQUIRE(impl_ != nullptr, "no graph has been captured");
  impl_->graph.replay();
}

void CapturedGraph::reset() { impl_.reset(); }
bool CapturedGraph::is_captured() const noexcept { return impl_ != nullptr; }

std::size_t peak_bytes(Device device)
{
  if (!device.is_gpu()) return 0;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device.gpu));
  return static_cast<std::size_t>(stats.allocated_bytes[0].peak);  // [0]: of all pools together
}

std::size_t num_out_of_memory(Device device)
{
  if (!device.is_gpu()) return 0;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device.gpu));
  return static_cast<std::size_t>(stats.num_ooms);
}

void release_cached_memory(Device device)
{
  if (!device.is_gpu()) return;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device.gpu));
  const auto kept = stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
  if (static_cast<std::size_t>(kept) > memory_of(device).free) c10::cuda::CUDACachingAllocator::emptyCache();
}

}  // namespace tessera
