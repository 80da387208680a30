// SPDX-License-Identifier: MIT
#include "tessera/engine/shard.hpp"

#include <algorithm>
#include <cmath>

#include "tessera/base/error.hpp"

namespace tessera {

namespace {

// Å of drift after which a rebuild also cuts anew. The cut stays right whatever the drift; shards only fray, and their
// halos grow by about this much.
constexpr double kDriftLimit = 2.0;

}  // namespace

Shard::Shard(const EngineOptions& options, std::shared_ptr<Communicator> communicator)
    : curve_kind_(options.curve),
      recut_(options.recut),
      drift_limit_(kDriftLimit),
      communicator_(std::move(communicator))
{
}

void Shard::select_visible(const AtomsInput& atoms)
{
  TESSERA_REQUIRE(atoms.ids.size() == atoms.positions.size() && atoms.elements.size() == atoms.positions.size(),
                  "expected one id and one element for each of {} positions, found {} ids and {} elements",
                  atoms.positions.size(), atoms.ids.size(), atoms.elements.size());
  num_caller_ = atoms.positions.size();
  visible_.clear();
  for (std::size_t k = 0; k < num_caller_; ++k) {
    if (atoms.elements[k] >= 0) visible_.push_back(static_cast<std::int64_t>(k));
  }
}

bool Shard::find_rows(const AtomsInput& atoms, bool is_reordered)
{
  std::int64_t any = is_reordered || atoms.positions.size() != num_caller_ ? 1 : 0;
  communicator_->all_reduce(std::span(&any, 1), Reduction::max);
  if (any == 0) return true;
  select_visible(atoms);
  std::vector<std::int64_t> ids;
  std::vector<std::int32_t> elements;
  if (!is_cut() || !reshard_->relabel(visible_part(atoms.ids, ids))) return false;
  std::int64_t changed = reshard_->forward(visible_part(atoms.elements, elements)) == elements_ ? 0 : 1;
  communicator_->all_reduce(std::span(&changed, 1), Reduction::max);
  return changed == 0;
}

void Shard::take_positions(const AtomsInput& atoms)
{
  reshard_->forward(visible_part(atoms.positions, visible_positions_), positions_);
}

bool Shard::should_cut(const Box& box)
{
  double drift_sq = 0;
  for (std::size_t row = 0; row < positions_.size(); ++row) {
    const Vec3 moved = positions_[row] - cut_positions_[row];
    drift_sq = std::max(drift_sq, dot(moved, moved));
  }
  communicator_->all_reduce(std::span(&drift_sq, 1), Reduction::max);
  drift_ = std::sqrt(drift_sq);
  const Box& then = curve_->box();
  const bool same_box = box.cell() == then.cell() && box.origin() == then.origin() && box.periodic() == then.periodic();
  return has_expired() || drift_ > drift_limit_ || !same_box;
}

void Shard::cut(const AtomsInput& atoms, std::span<const std::int64_t> weights)
{
  select_visible(atoms);
  std::vector<std::int64_t> visible_ids;
  std::vector<std::int32_t> visible_elements;
  const auto positions = visible_part(atoms.positions, visible_positions_);
  const auto ids = visible_part(atoms.ids, visible_ids);
  curve_.emplace(curve_kind_, atoms.box, agree_on_extent(positions, atoms.box, *communicator_));
  const std::vector<Key> keys = curve_->keys_of(positions);
  const int num_shards = communicator_->num_ranks();
  splitters_ = weights.empty() ? cut_by_count(keys, ids, num_shards, *communicator_)
                               : cut_by_weight(keys, ids, weights, num_shards, *communicator_);
  reshard_ = ReshardPlan::build(keys, ids, splitters_, communicator_);
  reshard_->forward(positions, positions_);
  reshard_->forward(visible_part(atoms.elements, visible_elements), elements_);
  cut_positions_ = positions_;
  age_ = 0;
  drift_ = 0;
}

}  // namespace tessera
