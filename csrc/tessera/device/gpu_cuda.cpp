// SPDX-License-Identifier: MIT
#include <cuda_runtime.h>

#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/device/gpu.hpp"
#include "tessera/device/memory.hpp"
#include "tessera/device/stream.hpp"

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

std::string gpu_bus_id(int device)
{
  char text[32] = {};
  TESSERA_CUDA_CHECK(cudaDeviceGetPCIBusId(text, sizeof(text), device));
  return text;
}

void check_cuda(int code, const char* what)
{
  const auto error = static_cast<cudaError_t>(code);
  if (error != cudaSuccess) (void)cudaGetLastError();  // reported here, not by the next launch
  TESSERA_REQUIRE(error == cudaSuccess,
                  "CUDA: {} failed with {} ({}); compute-sanitizer finds the cause of a bad access", what,
                  cudaGetErrorName(error), cudaGetErrorString(error));
}

void* allocate(Device device, MemoryKind kind, std::size_t bytes)
{
  if (!device.is_gpu()) return ::operator new(bytes, std::align_val_t{64});
  if (bytes == 0) return nullptr;
  const CurrentDevice scope(device);
  void* memory = nullptr;
  const auto code = kind == MemoryKind::pinned ? cudaMallocHost(&memory, bytes) : cudaMalloc(&memory, bytes);
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // reported here, not by the next call
    const MemoryUse use = memory_of(device);
    fail(Reach::rank, "expected {} bytes of {}, found {} of {} free on {}; use more GPUs or a smaller skin", bytes,
         kind == MemoryKind::pinned ? "page-locked memory" : "GPU memory", use.free, use.total, gpu_name(device.gpu));
  }
  check_cuda(code, "allocate");
  return memory;
}

void release(Device device, MemoryKind kind, void* memory) noexcept
{
  if (memory == nullptr) return;
  if (!device.is_gpu()) {
    ::operator delete(memory, std::align_val_t{64});
  } else {  // an error here has been reported by the call that caused it
    (void)(kind == MemoryKind::pinned ? cudaFreeHost(memory) : cudaFree(memory));
  }
}

void copy_bytes(void* to, const void* from, std::size_t bytes, StreamRef stream)
{
  if (bytes == 0) return;
  if (!stream.is_gpu()) {
    std::memcpy(to, from, bytes);
  } else {
    TESSERA_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.handle));
  }
}

void clear_bytes(void* memory, std::size_t bytes, StreamRef stream)
{
  if (bytes == 0) return;
  if (!stream.is_gpu()) {
    std::memset(memory, 0, bytes);
  } else {
    TESSERA_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream.handle));
  }
}

MemoryUse memory_of(Device device)
{
  const CurrentDevice scope(device);
  MemoryUse use;
  TESSERA_CUDA_CHECK(cudaMemGetInfo(&use.free, &use.total));
  return use;
}

namespace {

/// Streams without an owner, by GPU and priority.
class IdleStreams {
 public:
  cudaStream_t take(int gpu, Priority priority)
  {
    const std::lock_guard lock(mutex_);
    auto& idle = streams_[{gpu, priority}];
    if (idle.empty()) return nullptr;
    cudaStream_t stream = idle.back();
    idle.pop_back();
    return stream;
  }

  void give(int gpu, Priority priority, cudaStream_t stream)
  {
    const std::lock_guard lock(mutex_);
    streams_[{gpu, priority}].push_back(stream);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, Priority>, std::vector<cudaStream_t>> streams_;
};

IdleStreams& idle_streams()
{
  static auto* const pool = new IdleStreams;  // never destroyed: owners may outlive what is static
  return *pool;
}

}  // namespace

Stream::Stream(Device device, Priority priority) : stream_{device, nullptr}, priority_(priority)
{
  if (!device.is_gpu()) return;
  stream_.handle = idle_streams().take(device.gpu, priority);
  if (stream_.handle != nullptr) return;
  const CurrentDevice scope(device);
  int lowest = 0, highest = 0;
  TESSERA_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  const int number = priority == Priority::high ? highest : 0;  // 0 is the default, and lower numbers go first
  TESSERA_CUDA_CHECK(cudaStreamCreateWithPriority(&stream_.handle, cudaStreamNonBlocking, number));
}

Stream::~Stream()
{
  if (stream_.handle == nullptr) return;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream_.handle, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone) {
    (void)cudaGetLastError();  // a recording was broken off: nobody else shall get this stream
    (void)cudaStreamDestroy(stream_.handle);
    return;
  }
  // what is still queued runs before the next owner's
  idle_streams().give(stream_.device.gpu, priority_, stream_.handle);
}

Event::Event(Device device) : device_(device)
{
  if (!device.is_gpu()) return;
  const CurrentDevice scope(device);
  TESSERA_CUDA_CHECK(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming));
}

Event::~Event()
{
  if (handle_ != nullptr) (void)cudaEventDestroy(handle_);
}

void Event::record(StreamRef stream)
{
  if (device_.is_gpu()) TESSERA_CUDA_CHECK(cudaEventRecord(handle_, stream.handle));
}

void Event::hold_back(StreamRef stream) const
{
  if (device_.is_gpu()) TESSERA_CUDA_CHECK(cudaStreamWaitEvent(stream.handle, handle_, 0));
}

void Event::synchronize() const
{
  if (device_.is_gpu()) TESSERA_CUDA_CHECK(cudaEventSynchronize(handle_));
}

void synchronize(StreamRef stream)
{
  if (stream.is_gpu()) TESSERA_CUDA_CHECK(cudaStreamSynchronize(stream.handle));
}

bool is_capturing(StreamRef stream)
{
  if (!stream.is_gpu()) return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  TESSERA_CUDA_CHECK(cudaStreamIsCapturing(stream.handle, &status));
  return status != cudaStreamCaptureStatusNone;
}

CurrentDevice::CurrentDevice(Device device)
{
  if (!device.is_gpu()) return;
  int current = -1;
  TESSERA_CUDA_CHECK(cudaGetDevice(&current));
  if (current == device.gpu) return;
  TESSERA_CUDA_CHECK(cudaSetDevice(device.gpu));
  before_ = current;
}

CurrentDevice::~CurrentDevice()
{
  if (before_ >= 0) (void)cudaSetDevice(before_);
}

}  // namespace tessera
