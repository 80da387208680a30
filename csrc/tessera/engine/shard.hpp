// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/engine/engine.hpp"
#include "tessera/partition/curve.hpp"
#include "tessera/partition/reshard.hpp"
#include "tessera/partition/splitters.hpp"

namespace tessera {

/// The rows that this rank owns, and their tie to the caller's atoms.
///
/// The caller (LAMMPS) divides the atoms its own way; the shard holds a stretch of the curve through all of them. Rows
/// keep their order from one cut to the next, while the caller may reorder or migrate its atoms at any step.
class Shard {
 public:
  Shard(const EngineOptions& options, std::shared_ptr<Communicator> communicator);

  [[nodiscard]] bool is_cut() const noexcept { return reshard_.has_value(); }

  /// Takes the caller's atoms of this step; `is_reordered` on any rank makes all ranks find their rows anew.
  /// All ranks call this.
  /// @returns false, on all ranks, if the atoms are no longer those of the last cut.
  [[nodiscard]] bool find_rows(const AtomsInput& atoms, bool is_reordered);

  /// Moves the caller's positions of this step into the rows. All ranks call this.
  void take_positions(const AtomsInput& atoms);

  /// Whether the next rebuild should cut anew: the clock has run out, atoms have drifted, or the box has changed.
  /// All ranks call this and agree.
  [[nodiscard]] bool should_cut(const Box& box);
  /// Whether the clock alone asks for a cut; the same on all ranks.
  [[nodiscard]] bool has_expired() const { return recut_ > 0 && age_ >= recut_; }

  /// Cuts anew from the caller's atoms and fills the rows. All ranks call this.
  /// @param weights of the caller's visible atoms; empty: equal counts.
  void cut(const AtomsInput& atoms, std::span<const std::int64_t> weights);

  void tick() { ++age_; }

  /// Largest distance that any atom of any rank has moved since the cut, as of the last should_cut(); 0 after a cut, Å.
  [[nodiscard]] double drift() const noexcept { return drift_; }

  [[nodiscard]] std::span<const Vec3> positions() const noexcept { return positions_; }
  [[nodiscard]] std::span<const std::int32_t> elements() const noexcept { return elements_; }
  [[nodiscard]] std::span<const std::int64_t> ids() const noexcept { return reshard_->row_ids(); }
  [[nodiscard]] const Curve& curve() const { return *curve_; }
  [[nodiscard]] const Splitters& splitters() const noexcept { return splitters_; }

  /// Values of visible atoms in the caller's order, without the invisible ones.
  template <typename Value>
  [[nodiscard]] std::vector<Value> to_visible(std::span<const Value> rows) const
  {
    return reshard_->reverse(rows);
  }

  /// Values of rows in the caller's order; zero for atoms that Tessera does not see. All ranks call this.
  template <typename Value>
  void to_caller(std::span<const Value> rows, std::vector<Value>& out) const
  {
    if (sees_all()) {
      reshard_->reverse(rows, out);
      return;
    }
    const std::vector<Value> visible = reshard_->reverse(rows);
    out.assign(num_caller_, Value{});
    for (std::size_t k = 0; k < visible.size(); ++k) out[visible_[k]] = visible[k];
  }

 private:
  void select_visible(const AtomsInput& atoms);
  [[nodiscard]] bool sees_all() const noexcept { return visible_.size() == num_caller_; }

  /// Values of the caller's atoms without the invisible ones; those are left out in `room`.
  template <typename Value>
  [[nodiscard]] std::span<const Value> visible_part(std::span<const Value> values, std::vector<Value>& room) const
  {
    if (sees_all()) return values;
    room.resize(visible_.size());
    for (std::size_t k = 0; k < visible_.size(); ++k) room[k] = values[visible_[k]];
    return room;
  }

  CurveKind curve_kind_;
  std::int64_t recut_;
  double drift_limit_;
  std::shared_ptr<Communicator> communicator_;

  std::size_t num_caller_ = 0;
  std::vector<std::int64_t> visible_;  // caller's index of each visible atom
  std::vector<Vec3> visible_positions_;
  std::optional<Curve> curve_;
  Splitters splitters_;
  std::optional<ReshardPlan> reshard_;
  std::vector<Vec3> positions_;
  std::vector<Vec3> cut_positions_;
  std::vector<std::int32_t> elements_;
  std::int64_t age_ = 0;
  double drift_ = 0;
};

}  // namespace tessera
