// SPDX-License-Identifier: MIT
#include "tessera/plan/halo_exchange.hpp"

#include <chrono>
#include <cstring>

#include "tessera/base/error.hpp"
#include "tessera/device/device_array.hpp"
#include "tessera/plan/halo_direction.hpp"

namespace tessera {
namespace {

using Direction = HaloDirection;

std::int64_t bytes_of(Scalar scalar) { return scalar == Scalar::float32 ? 4 : 8; }

template <typename T>
void add_rows(const std::byte* from, std::span<const std::int64_t> rows, std::int64_t channels, void* owned)
{
  const T* source = reinterpret_cast<const T*>(from);
  T* target = static_cast<T*>(owned);
  for (const auto row : rows) {
    for (std::int64_t c = 0; c < channels; ++c) target[row * channels + c] += *source++;
  }
}

}  // namespace

/// The exchange under way, and the buffers that outlive it.
///
///     forward:  owned --pack--> outgoing [send rows of peer 0 | peer 1 | ...] ==> incoming [halo rows] --copy--> halo
///     reverse:  halo  --copy--> outgoing [halo rows] ==> incoming [send rows of peer 0 | peer 1 | ...] --add--> owned
struct HaloExchange::Flight {
  Direction direction = Direction::none;
  std::int64_t channels = 0;
  Scalar scalar = Scalar::float64;
  DeviceArray<std::byte> outgoing, incoming;  // of the host
  std::vector<std::unique_ptr<Request>> requests;

  [[nodiscard]] std::int64_t row_bytes() const { return channels * bytes_of(scalar); }
};

HaloExchange::HaloExchange(std::shared_ptr<const HaloPlan> plan, std::shared_ptr<Communicator> communicator, int tag,
                           bool overlaps)
    : plan_(std::move(plan)),
      communicator_(std::move(communicator)),
      tag_(tag),
      overlaps_(overlaps),
      flight_(std::make_unique<Flight>())
{
  TESSERA_REQUIRE(plan_ != nullptr && communicator_ != nullptr, "an exchange needs a plan and a communicator");
  plan_->validate();
  for (const HaloPeer& peer : plan_->peers) {
    TESSERA_REQUIRE(peer.rank < communicator_->num_ranks(), "the plan names rank {}, the communicator has {}",
                    peer.rank, communicator_->num_ranks());
  }
}

HaloExchange::~HaloExchange() = default;

std::int64_t HaloExchange::channels_in_flight() const noexcept
{
  return flight_->direction == Direction::none ? 0 : flight_->channels;
}

void HaloExchange::begin(bool is_forward, std::int64_t channels, Scalar scalar)
{
  const Direction direction = is_forward ? Direction::forward : Direction::reverse;
  TESSERA_REQUIRE(flight_->direction == Direction::none, "{} is in flight, wait for it before starting {}",
                  name_of(flight_->direction), name_of(direction));
  TESSERA_REQUIRE(channels >= 0, "{} channels", channels);
  flight_->channels = channels;
  flight_->scalar = scalar;
  flight_->requests.clear();
  std::int64_t num_send = 0;
  for (const HaloPeer& peer : plan_->peers) num_send += static_cast<std::int64_t>(peer.send_rows.size());
  const std::int64_t num_out = is_forward ? num_send : plan_->num_halo;
  const std::int64_t num_in = is_forward ? plan_->num_halo : num_send;
  flight_->outgoing.resize(num_out * flight_->row_bytes());
  flight_->incoming.resize(num_in * flight_->row_bytes());
}

/// Posts all receives, then all sends; both sides leave out empty messages.
void HaloExchange::launch(bool is_forward)
{
  const auto rows = [&](const HaloPeer& peer, bool send_rows) {
    return send_rows ? static_cast<std::int64_t>(peer.send_rows.size()) : peer.num_receive;
  };
  std::int64_t first = 0;
  for (const HaloPeer& peer : plan_->peers) {
    const std::int64_t bytes = rows(peer, !is_forward) * flight_->row_bytes();
    if (bytes > 0) {
      const auto part = flight_->incoming.items().subspan(first, bytes);
      flight_->requests.push_back(communicator_->receive(part, peer.rank, tag_));
    }
    first += bytes;
  }
  first = 0;
  for (const HaloPeer& peer : plan_->peers) {
    const std::int64_t bytes = rows(peer, is_forward) * flight_->row_bytes();
    if (bytes > 0) {
      const auto part = flight_->outgoing.items().subspan(first, bytes);
      flight_->requests.push_back(communicator_->send(part, peer.rank, tag_));
      ++traffic_.messages;
      traffic_.bytes += bytes;
    }
    first += bytes;
  }
  flight_->direction = is_forward ? Direction::forward : Direction::reverse;
  if (!overlaps_) await_messages();
}

void HaloExchange::finish(bool is_forward)
{
  const Direction direction = is_forward ? Direction::forward : Direction::reverse;
  TESSERA_REQUIRE(flight_->direction == direction, "waiting for {} while {} is in flight", name_of(direction),
                  name_of(flight_->direction));
  flight_->direction = Direction::none;  // also when a wait throws: the exchange is over then
  await_messages();
}

void HaloExchange::await_messages()
{
  const auto start = std::chrono::steady_clock::now();
  for (auto& request : flight_->requests) request->wait();
  flight_->requests.clear();
  traffic_.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void HaloExchange::start_forward(const void* owned, std::int64_t channels, Scalar scalar)
{
  begin(true, channels, scalar);
  const auto row_bytes = flight_->row_bytes();
  std::byte* target = flight_->outgoing.items().data();
  for (const HaloPeer& peer : plan_->peers) {
    if (row_bytes == 0) break;
    for (const auto row : peer.send_rows) {
      std::memcpy(target, static_cast<const std::byte*>(owned) + row * row_bytes, row_bytes);
      target += row_bytes;
    }
  }
  launch(true);
}

void HaloExchange::wait_forward(void* halo)
{
  finish(true);
  const auto received = flight_->incoming.items();
  if (!received.empty()) std::memcpy(halo, received.data(), received.size());
}

void HaloExchange::start_reverse(const void* halo, std::int64_t channels, Scalar scalar)
{
  begin(false, channels, scalar);
  const auto packed = flight_->outgoing.items();
  if (!packed.empty()) std::memcpy(packed.data(), halo, packed.size());
  launch(false);
}

void HaloExchange::wait_reverse(void* owned)
{
  finish(false);
  const std::byte* next = flight_->incoming.items().data();
  for (const HaloPeer& peer : plan_->peers) {
    if (flight_->scalar == Scalar::float32) {
      add_rows<float>(next, peer.send_rows, flight_->channels, owned);
    } else {
      add_rows<double>(next, peer.send_rows, flight_->channels, owned);
    }
    next += static_cast<std::int64_t>(peer.send_rows.size()) * flight_->row_bytes();
  }
}

}  // namespace tessera
