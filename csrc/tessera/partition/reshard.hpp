// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/partition/splitters.hpp"

namespace tessera {

/// Moves values between the caller's atoms (wherever the caller keeps them) and the rows of the shards.
///
///     caller's atoms, in its order   --forward-->   rows of this rank's shard, in (key, id) order
///                                    <--reverse--
///
/// A rank talks only to ranks with which it shares atoms; its own part is copied. Each exchange sends at most one
/// message to a rank. The values pass through unchanged, so reverse(forward(x)) == x bit for bit.
/// All ranks call build(), relabel(), forward() and reverse() together.
class ReshardPlan {
 public:
  /// @param keys, ids [num_atoms] of this rank; the atoms that Tessera shall not see are left out by the caller.
  /// @param tag of this plan's messages; two plans in use at one time have different tags.
  /// @pre splitters.num_shards() == communicator->num_ranks(), and they are the same on all ranks.
  /// @throws Error(collective) naming the id if an id occurs twice among all ranks.
  [[nodiscard]] static ReshardPlan build(std::span<const Key> keys, std::span<const std::int64_t> ids,
                                         const Splitters& splitters, std::shared_ptr<Communicator> communicator,
                                         int tag = kDefaultTag);

  /// Finds the caller's atoms again after it reordered them or moved them to other ranks; shards and rows stay.
  ///
  /// Through a directory spread over the ranks (hash of the id mod K): the caller need carry nothing with its atoms.
  /// @return true on all ranks; or false on all ranks, with the plan unchanged, if an atom was added or lost anywhere.
  /// @throws Error(collective) naming the id if an id occurs twice among all ranks.
  [[nodiscard]] bool relabel(std::span<const std::int64_t> ids);

  [[nodiscard]] std::int64_t num_rows() const noexcept { return static_cast<std::int64_t>(row_ids_.size()); }
  [[nodiscard]] std::span<const std::int64_t> row_ids() const noexcept { return row_ids_; }
  /// Atoms of the caller on this rank.
  [[nodiscard]] std::int64_t num_atoms() const noexcept { return num_atoms_; }
  /// Messages that this rank sends in one forward().
  [[nodiscard]] std::int64_t num_messages() const noexcept;

  /// Values of the caller's atoms [num_atoms] -> of this shard's rows [num_rows], which are written into `row_values`.
  template <typename T>
  void forward(std::span<const T> atom_values, std::vector<T>& row_values) const
  {
    TESSERA_REQUIRE(static_cast<std::int64_t>(atom_values.size()) == num_atoms_,
                    "reshard: expected values of {} atoms, found {}", num_atoms_, atom_values.size());
    row_values.resize(row_ids_.size());
    move<T>(outward_, inward_, atom_values, row_values);
  }

  /// Values of this shard's rows [num_rows] -> of the caller's atoms [num_atoms], in the caller's order.
  template <typename T>
  void reverse(std::span<const T> row_values, std::vector<T>& atom_values) const
  {
    TESSERA_REQUIRE(static_cast<std::int64_t>(row_values.size()) == num_rows(),
                    "reshard: expected values of {} rows, found {}", num_rows(), row_values.size());
    atom_values.resize(num_atoms_);
    move<T>(inward_, outward_, row_values, atom_values);
  }

  template <typename T>
  [[nodiscard]] std::vector<T> forward(std::span<const T> atom_values) const
  {
    std::vector<T> row_values;
    forward(atom_values, row_values);
    return row_values;
  }

  template <typename T>
  [[nodiscard]] std::vector<T> reverse(std::span<const T> row_values) const
  {
    std::vector<T> atom_values;
    reverse(row_values, atom_values);
    return atom_values;
  }

  static constexpr int kDefaultTag = 7001;

 private:
  /// Places that are exchanged with each rank, packed in rank order; both ends list them in the order of the rows.
  struct Side {
    std::vector<std::int64_t> first;   // [num_ranks + 1]
    std::vector<std::int64_t> places;  // atoms of the caller, or rows
    [[nodiscard]] std::int64_t count(int rank) const noexcept { return first[rank + 1] - first[rank]; }
  };
  /// A row somewhere.
  struct Address {
    std::int64_t rank = 0, row = 0;
  };
  struct DirectoryEntry {
    std::int64_t id = 0;
    Address address;
  };

  ReshardPlan(std::shared_ptr<Communicator> communicator, int tag);
  void register_rows();
  void connect(std::span<const Address> addresses);

  /// The own part goes from place to place, what others get through buffers in rank order.
  template <typename T>
  void move(const Side& from, const Side& to, std::span<const T> source, std::span<T> target) const
  {
    static_assert(std::is_trivially_copyable_v<T>);
    const int me = communicator_->rank();
    const std::span<const std::int64_t> read = from.places, written = to.places;
    std::vector<T> outgoing(read.size() - from.count(me)), incoming(written.size() - to.count(me));
    const auto pack = [&](std::int64_t begin, std::int64_t end, std::int64_t at) {
      for (std::int64_t k = begin; k < end; ++k) outgoing[at++] = source[read[k]];
    };
    pack(0, from.first[me], 0);
    pack(from.first[me + 1], std::ssize(read), from.first[me]);
    const auto requests =
        start(from, to, std::as_bytes(std::span(outgoing)), std::as_writable_bytes(std::span(incoming)), sizeof(T));
    const std::int64_t own_read = from.first[me], own_written = to.first[me];
    for (std::int64_t k = 0; k < to.count(me); ++k) target[written[own_written + k]] = source[read[own_read + k]];
    for (const auto& request : requests) request->wait();
    const auto unpack = [&](std::int64_t begin, std::int64_t end, std::int64_t at) {
      for (std::int64_t k = begin; k < end; ++k) target[written[k]] = incoming[at++];
    };
    unpack(0, to.first[me], 0);
    unpack(to.first[me + 1], std::ssize(written), to.first[me]);
  }
  /// Messages of the other ranks' parts, packed in rank order without the own one.
  [[nodiscard]] std::vector<std::unique_ptr<Request>> start(const Side& from, const Side& to,
                                                            std::span<const std::byte> outgoing,
                                                            std::span<std::byte> incoming,
                                                            std::size_t value_size) const;

  std::shared_ptr<Communicator> communicator_;
  int tag_;
  std::int64_t num_atoms_ = 0;
  std::vector<std::int64_t> row_ids_;
  Side outward_;                           // the caller's atoms by shard rank
  Side inward_;                            // rows by the rank whose atoms they are
  std::vector<DirectoryEntry> directory_;  // sorted by id; the ids whose hash mod K is this rank
};

}  // namespace tessera
