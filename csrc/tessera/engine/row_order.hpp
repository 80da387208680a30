// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tessera/base/types.hpp"

namespace tessera {

/// The caller's atoms in the order of a shard's rows, on one rank.
///
/// Rows keep their order for a whole epoch, while the caller may reorder its atoms at any step (LAMMPS sorts and
/// migrates them); the permanent ids tie the two together. Atoms with element -1 have no row.
class RowOrder {
 public:
  /// Starts anew: one row for each visible atom, in the caller's order.
  /// @throws Error(rank) if two atoms share an id.
  void assign(std::span<const std::int64_t> ids, std::span<const std::int32_t> elements, std::span<const Vec3> positions);

  /// Finds the rows of a reordered caller.
  /// @returns false, changing nothing, if the atoms or their elements are not the ones of assign().
  [[nodiscard]] bool relabel(std::span<const std::int64_t> ids, std::span<const std::int32_t> elements);

  /// Takes the caller's positions of this step.
  void update(std::span<const Vec3> positions);

  [[nodiscard]] std::span<const Vec3> positions() const noexcept { return positions_; }
  [[nodiscard]] std::span<const std::int64_t> ids() const noexcept { return ids_; }
  [[nodiscard]] std::span<const std::int32_t> elements() const noexcept { return elements_; }

  /// Values of rows in the caller's order; zero for atoms without a row.
  template <typename Value>
  void to_caller(const std::vector<Value>& rows, std::vector<Value>& out) const
  {
    out.assign(num_caller_, Value{});
    for (std::size_t row = 0; row < caller_.size(); ++row) out[caller_[row]] = rows[row];
  }

 private:
  std::size_t num_caller_ = 0;
  std::vector<std::int64_t> caller_;  // [rows] the caller's index of each row
  std::vector<std::int64_t> ids_;
  std::vector<std::int32_t> elements_;
  std::vector<Vec3> positions_;
  std::vector<std::pair<std::int64_t, std::int64_t>> row_of_id_;  // ascending ids
};

}  // namespace tessera
