// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <utility>

struct CUstream_st;
struct CUevent_st;

namespace tessera {

/// The host, or one GPU by its number among the visible ones.
struct Device {
  int gpu = -1;
  [[nodiscard]] bool is_gpu() const noexcept { return gpu >= 0; }
  bool operator==(const Device&) const = default;
};

/// Where kernels and copies are queued; on the host they run at once. Not an owner.
struct StreamRef {
  Device device;
  CUstream_st* handle = nullptr;  ///< of a GPU; nullptr is its default stream
  [[nodiscard]] bool is_gpu() const noexcept { return device.is_gpu(); }
};

/// Which of several streams' kernels gets free places on the GPU first.
enum class Priority { normal, high };

/// A stream of its own beside PyTorch's. It comes from a pool of this process and returns there, so that engines made
/// one after another use the same ones: PyTorch keeps a workspace of products (33 MiB on an H200) for each stream that
/// it has met, until the process ends.
class Stream {
 public:
  explicit Stream(Device device, Priority priority = Priority::normal);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] operator StreamRef() const noexcept { return stream_; }

 private:
  StreamRef stream_;
  Priority priority_;
};

/// A point in a stream that another stream, or the host, can wait for. On the host everything is always done.
class Event {
 public:
  explicit Event(Device device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(StreamRef stream);
  void hold_back(StreamRef stream) const;  ///< what is queued on `stream` from now on waits for the recorded point
  void synchronize() const;                ///< the host waits

 private:
  Device device_;
  CUevent_st* handle_ = nullptr;
};

/// Waits until everything queued on the stream is done. @throws Error(rank) with what a kernel did wrong.
void synchronize(StreamRef stream);

/// Whether what is queued on the stream is being captured into a graph instead of running; false on the host.
[[nodiscard]] bool is_capturing(StreamRef stream);

/// Makes `device` the current one of this thread until the end of scope; nothing for the host.
class CurrentDevice {
 public:
  explicit CurrentDevice(Device device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;
};

}  // namespace tessera
