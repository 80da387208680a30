// SPDX-License-Identifier: MIT
// A build without CUDA: there is no device. gpu_cuda.cpp takes this file's place with -DTESSERA_CUDA=ON.
#include <cstring>
#include <new>

#include "tessera/base/error.hpp"
#include "tessera/device/gpu.hpp"
#include "tessera/device/memory.hpp"
#include "tessera/device/stream.hpp"

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
std::string gpu_bus_id(int /*device*/) { refuse("gpu_bus_id"); }
void check_cuda(int /*code*/, const char* what) { refuse(what); }

void* allocate(Device device, MemoryKind /*kind*/, std::size_t bytes)
{
  if (device.is_gpu()) refuse("allocate");
  return ::operator new(bytes, std::align_val_t{64});
}

void release(Device /*device*/, MemoryKind /*kind*/, void* memory) noexcept
{
  if (memory != nullptr) ::operator delete(memory, std::align_val_t{64});
}

void copy_bytes(void* to, const void* from, std::size_t bytes, StreamRef /*stream*/)
{
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void clear_bytes(void* memory, std::size_t bytes, StreamRef /*stream*/)
{
  if (bytes > 0) std::memset(memory, 0, bytes);
}

MemoryUse memory_of(Device /*device*/) { refuse("memory_of"); }

Stream::Stream(Device device, Priority priority) : stream_{device, nullptr}, priority_(priority)
{
  if (device.is_gpu()) refuse("Stream");
}
Stream::~Stream() = default;

Event::Event(Device device) : device_(device)
{
  if (device.is_gpu()) refuse("Event");
}
Event::~Event() = default;
void Event::record(StreamRef /*stream*/) {}
void Event::hold_back(StreamRef /*stream*/) const {}
void Event::synchronize() const {}

void synchronize(StreamRef /*stream*/) {}
bool is_capturing(StreamRef /*stream*/) { return false; }

CurrentDevice::CurrentDevice(Device device)
{
  if (device.is_gpu()) refuse("CurrentDevice");
}
CurrentDevice::~CurrentDevice() = default;

}  // namespace tessera
