// SPDX-License-Identifier: MIT
#include "tessera/plan/device_halo_exchange.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "tessera/base/error.hpp"
#include "tessera/device/parallel.cuh"

namespace tessera {
namespace {

// What a row is copied by: wide loads where rows and addresses allow it, whatever the type of its numbers.
struct __attribute__((may_alias, aligned(16))) Unit16 {
  std::uint64_t low, high;
};
struct __attribute__((may_alias)) Unit8 {
  std::uint64_t bits;
};
struct __attribute__((may_alias)) Unit4 {
  std::uint32_t bits;
};

/// out[k, :] = rows[send_row[k], :], zero where send_row[k] < 0; an item is one unit of one row. Bitwise repeatable.
/// rows [>= num_owned, width], out [count, width], both in units
template <typename Unit>
void pack(StreamRef stream, const void* rows, std::int64_t row_bytes, const std::int32_t* send_row, std::int64_t count,
          void* out)
{
  const std::int64_t width = row_bytes / static_cast<std::int64_t>(sizeof(Unit));
  const auto* source = static_cast<const Unit*>(rows);
  auto* target = static_cast<Unit*>(out);
  parallel::for_each(
      stream, count * width, TESSERA_LAMBDA(std::int64_t item) {
        const std::int64_t k = item / width;
        const std::int64_t row = send_row[k];
        target[item] = row < 0 ? Unit{} : source[row * width + (item - k * width)];
      });
}

void pack_rows(StreamRef stream, const void* rows, std::int64_t row_bytes, const std::int32_t* send_row,
               std::int64_t count, void* out)
{
  const auto fits = [&](std::size_t unit) {
    return row_bytes % static_cast<std::int64_t>(unit) == 0 && reinterpret_cast<std::uintptr_t>(rows) % unit == 0;
  };
  if (fits(sizeof(Unit16))) {
    pack<Unit16>(stream, rows, row_bytes, send_row, count, out);
  } else if (fits(sizeof(Unit8))) {
    pack<Unit8>(stream, rows, row_bytes, send_row, count, out);
  } else {
    pack<Unit4>(stream, rows, row_bytes, send_row, count, out);
  }
}

/// owned[row, :] += sum over the row's copies of received[copy, :], in their order, for each row that has copies; an
/// item is one number of one such row, written by its item alone: no atomics, bitwise repeatable. owned [>= num_owned,
/// channels], received [count, channels], row [count] with -1 for none, first [count + 1], copies [count]
template <typename T>
void add_copies(StreamRef stream, void* owned, std::int64_t channels, const void* received, std::int64_t count,
                const std::int32_t* row, const std::int32_t* first, const std::int32_t* copies)
{
  auto* target = static_cast<T*>(owned);
  const auto* source = static_cast<const T*>(received);
  parallel::for_each(
      stream, count * channels, TESSERA_LAMBDA(std::int64_t item) {
        const std::int64_t k = item / channels, c = item - k * channels;
        if (row[k] < 0) return;
        T* const place = target + row[k] * channels + c;
        T sum = *place;
        for (std::int32_t copy = first[k]; copy < first[k + 1]; ++copy) sum += source[copies[copy] * channels + c];
        *place = sum;
      });
}

/// The index arrays of a plan in a layout, as DeviceHaloExchange keeps them.
struct Indices {
  std::vector<std::int32_t> send_row, copied_row, first_copy, copies;
};

Indices index_rows(const HaloPlan& plan, const HaloLayout& layout)
{
  Indices in;
  const auto count = static_cast<std::size_t>(layout.num_send());
  in.send_row.assign(count, -1);
  for (const HaloPeer& peer : plan.peers) {
    std::int64_t place = layout.room_of(peer).first_send;
    for (const std::int64_t row : peer.send_rows) in.send_row[place++] = static_cast<std::int32_t>(row);
  }
  std::vector<std::int32_t> next(plan.num_owned + 1, 0);  // where the next copy of each row goes
  for (const std::int32_t row : in.send_row) {
    if (row >= 0) ++next[row + 1];
  }
  for (std::int64_t row = 0; row < plan.num_owned; ++row) {
    if (next[row + 1] > 0) {
      in.copied_row.push_back(static_cast<std::int32_t>(row));
      in.first_copy.push_back(next[row]);
    }
    next[row + 1] += next[row];
  }
  in.copies.assign(count, 0);  // as long in every epoch; nobody reads beyond the last copy
  for (std::size_t place = 0; place < count; ++place) {
    if (in.send_row[place] >= 0) in.copies[next[in.send_row[place]]++] = static_cast<std::int32_t>(place);
  }
  in.copied_row.resize(count, -1);
  in.first_copy.resize(count + 1, next.back());
  return in;
}

}  // namespace

DeviceHaloExchange::DeviceHaloExchange(std::shared_ptr<DeviceLink> link, bool overlaps)
    : link_(std::move(link)),
      overlaps_(overlaps),
      send_row_(link_ ? link_->device() : Device{}),
      copied_row_(send_row_.device()),
      first_copy_(send_row_.device()),
      copies_(send_row_.device()),
      outgoing_(send_row_.device()),
      incoming_(send_row_.device()),
      side_(send_row_.device(), Priority::high),
      packed_(send_row_.device()),
      arrived_(send_row_.device())
{
  TESSERA_REQUIRE(link_ != nullptr, "an exchange needs a link, found none");
}

void DeviceHaloExchange::set_plan(std::shared_ptr<const HaloPlan> plan, HaloLayout layout, StreamRef stream)
{
  TESSERA_REQUIRE(plan != nullptr, "an exchange needs a plan, found none");
  TESSERA_REQUIRE(direction_ == HaloDirection::none, "{} is in flight, wait for it before the next epoch",
                  name_of(direction_));
  check_stream(stream);
  TESSERA_REQUIRE(!is_capturing(stream), "expected the plan of an epoch outside of a capture, found it within one");
  plan->validate();
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  TESSERA_REQUIRE(plan->num_owned < kMost && layout.num_send() < kMost,
                  "expected fewer than 2^31 - 1 owned rows and rows to send, found {} and {}; use more ranks",
                  plan->num_owned, layout.num_send());
  for (const HaloRoom& room : layout.rooms()) {
    TESSERA_REQUIRE(room.rank < link_->num_ranks(), "the layout names rank {}, the link has {}", room.rank,
                    link_->num_ranks());
  }
  const Indices indices = index_rows(*plan, layout);
  const auto addresses = [&] {
    return std::array{send_row_.data(), copied_row_.data(), first_copy_.data(), copies_.data()};
  };
  const auto before = addresses();
  send_row_.assign(indices.send_row, stream);
  copied_row_.assign(indices.copied_row, stream);
  first_copy_.assign(indices.first_copy, stream);
  copies_.assign(indices.copies, stream);
  if (layout != layout_ || addresses() != before) ++arrangement_;
  plan_ = std::move(plan);
  layout_ = std::move(layout);
}

const HaloPlan& DeviceHaloExchange::plan() const
{
  TESSERA_REQUIRE(plan_ != nullptr, "expected the plan of an epoch, found none: call set_plan() first");
  return *plan_;
}

std::int64_t DeviceHaloExchange::row_bytes() const noexcept { return channels_ * (scalar_ == Scalar::float32 ? 4 : 8); }

std::int64_t DeviceHaloExchange::channels_in_flight() const noexcept
{
  return direction_ == HaloDirection::none ? 0 : channels_;
}

void DeviceHaloExchange::check_stream(StreamRef stream) const
{
  TESSERA_REQUIRE(stream.device == device(),
                  "expected rows on the device of the link, {}, found some on {} (-1 is the host)", device().gpu,
                  stream.device.gpu);
}

void DeviceHaloExchange::make_room(StreamRef stream)
{
  // Of either direction, so that the first exchange of an epoch leaves the second nothing to do.
  const std::int64_t bytes = std::max(layout_.num_send(), layout_.num_slots()) * row_bytes();
  if (bytes > incoming_.capacity()) {
    TESSERA_REQUIRE(!is_capturing(stream),
                    "expected buffers of {} bytes before the capture of a graph, found {}: run the step once without "
                    "capture after a change of the layout",
                    bytes, incoming_.capacity());
    ++arrangement_;
  }
  outgoing_.resize(bytes, /*headroom=*/0);  // the layout has its own
  incoming_.resize(bytes, /*headroom=*/0);
}

void DeviceHaloExchange::start(HaloDirection direction, const void* rows, std::int64_t channels, Scalar scalar,
                               StreamRef stream)
{
  TESSERA_REQUIRE(direction_ == HaloDirection::none, "{} is in flight, wait for it before starting {}",
                  name_of(direction_), name_of(direction));
  TESSERA_REQUIRE(channels >= 0, "expected a row length of 0 or more, found {}", channels);
  (void)plan();
  check_stream(stream);
  const CurrentDevice scope(stream.device);
  channels_ = channels;
  scalar_ = scalar;
  make_room(stream);
  const auto* outgoing = static_cast<const std::byte*>(rows);
  if (direction == HaloDirection::forward) {
    outgoing = outgoing_.data();
    pack_rows(stream, rows, row_bytes(), send_row_.data(), layout_.num_send(), outgoing_.data());
  } else if (overlaps_) {
    // The caller may reuse the memory of its rows in the order of its own stream, which the messages are not part of.
    outgoing = outgoing_.data();
    copy_bytes(outgoing_.data(), rows, static_cast<std::size_t>(layout_.num_slots() * row_bytes()), stream);
  }
  launch(direction == HaloDirection::forward, outgoing, stream);
  direction_ = direction;
}

void DeviceHaloExchange::launch(bool is_forward, const std::byte* outgoing, StreamRef stream)
{
  std::byte* incoming = incoming_.data();
  sends_.clear();
  receives_.clear();
  for (const HaloRoom& room : layout_.rooms()) {
    const std::int64_t send = room.send_capacity * row_bytes(), receive = room.receive_capacity * row_bytes();
    const std::int64_t first_send = room.first_send * row_bytes(), first_slot = room.first_slot * row_bytes();
    const std::int64_t out = is_forward ? send : receive, in = is_forward ? receive : send;
    if (out > 0) {
      const std::byte* from = outgoing + (is_forward ? first_send : first_slot);
      sends_.push_back({room.rank, from, static_cast<std::size_t>(out)});
      ++traffic_.messages;
      traffic_.bytes += out;
    }
    if (in > 0) {
      std::byte* to = incoming + (is_forward ? first_slot : first_send);
      receives_.push_back({room.rank, to, static_cast<std::size_t>(in)});
    }
  }
  if (overlaps_) {
    packed_.record(stream);
    packed_.hold_back(side_);
  }
  link_->exchange(sends_, receives_, overlaps_ ? StreamRef(side_) : stream);
  if (overlaps_) arrived_.record(side_);
}

void DeviceHaloExchange::finish(HaloDirection direction, StreamRef stream)
{
  TESSERA_REQUIRE(direction_ == direction, "waiting for {} while {} is in flight", name_of(direction),
                  name_of(direction_));
  check_stream(stream);
  direction_ = HaloDirection::none;
  if (overlaps_) arrived_.hold_back(stream);
}

void DeviceHaloExchange::start_forward(const void* owned, std::int64_t channels, Scalar scalar, StreamRef stream)
{
  start(HaloDirection::forward, owned, channels, scalar, stream);
}

void DeviceHaloExchange::wait_forward(void* halo, StreamRef stream)
{
  finish(HaloDirection::forward, stream);
  copy_bytes(halo, incoming_.data(), static_cast<std::size_t>(layout_.num_slots() * row_bytes()), stream);
}

void DeviceHaloExchange::start_reverse(const void* halo, std::int64_t channels, Scalar scalar, StreamRef stream)
{
  start(HaloDirection::reverse, halo, channels, scalar, stream);
}

void DeviceHaloExchange::wait_reverse(void* owned, StreamRef stream)
{
  finish(HaloDirection::reverse, stream);
  const CurrentDevice scope(stream.device);
  const auto add = scalar_ == Scalar::float32 ? add_copies<float> : add_copies<double>;
  add(stream, owned, channels_, incoming_.data(), layout_.num_send(), copied_row_.data(), first_copy_.data(),
      copies_.data());
}

}  // namespace tessera
