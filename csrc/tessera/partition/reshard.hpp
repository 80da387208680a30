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

  /// Values of the caller's atoms [num_atoms] -> of this shard's rows [num_rows].
  template <typename T>
  [[nodiscard]] std::vector<T> forward(std::span<const T> atom_values) const
  {
    static_assert(std::is_trivially_copyable_v<T>);
    TESSERA_REQUIRE(static_cast<std::int64_t>(atom_values.size()) == num_atoms_,
                    "reshard: expected values of {} atoms, found {}", num_atoms_, atom_values.size());
    std::vector<T> row_values(row_ids_.size());
    move(outward_, inward_, std::as_bytes(atom_values), std::as_writable_bytes(std::span(row_values)), sizeof(T));
    return row_values;
  }

  /// Values of this shard's rows [num_rows] -> of the caller's atoms [num_atoms], in the caller's order.
  template <typename T>
  [[nodiscard]] std::vector<T> reverse(std::span<const T> row_values) const
  {
    static_assert(std::is_trivially_copyable_v<T>);
    TESSERA_REQUIRE(static_cast<std::int64_t>(row_values.size()) == num_rows(),
                    "reshard: expected values of {} rows, found {}", num_rows(), row_values.size());
    std::vector<T> atom_values(num_atoms_);
    move(inward_, outward_, std::as_bytes(row_values), std::as_writable_bytes(std::span(atom_values)), sizeof(T));
    return atom_values;
  }

  static constexpr int kDefaultTag = 7001;

 private:
  /// Places that are exchanged with each rank, packed in rank order; both ends list them in the order of the rows.
  struct Side {
    std::vector<std::int64_t> first;   // [num_ranks + 1]
    std::vector<std::int64_t> places;  // atoms of the caller, or rows
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
  void move(const Side& from, const Side& to, std::span<const std::byte> source, std::span<std::byte> target,
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
