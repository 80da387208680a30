// SPDX-License-Identifier: MIT
#include "tessera/topology/topology_cache.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/deformation.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

// Å taken from the skin, so that rounding of positions (up to 1e6 Å) never decides in favour of an old list.
constexpr double kRoundingMargin = 1e-9;

}  // namespace

TopologyCache::TopologyCache(double largest_cutoff, double skin, std::int64_t interval)
    : largest_cutoff_(largest_cutoff), skin_(skin), interval_(interval)
{
  if (!(largest_cutoff > 0) || !(skin >= 0) || interval < 0) {
    fail(Reach::collective, "expected a cutoff > 0 Å, a skin >= 0 Å and an interval >= 0 steps, found {}, {} and {}",
         largest_cutoff, skin, interval);
  }
}

RebuildCause TopologyCache::vote(std::span<const Vec3> positions, const Box& box, RebuildCause local_cause, bool ok,
                                 Communicator& communicator) const
{
  RebuildCause cause = local_cause;
  const bool is_decided = epoch_ == 0 || cause != RebuildCause::none;
  // A changed number of atoms that nobody declared is a failure of this rank, which the others must hear of.
  const bool is_same_set = is_decided || positions.size() == reference_.size();
  if (epoch_ == 0) {
    cause = RebuildCause::first;
  } else if (cause == RebuildCause::none && interval_ > 0 && age_ >= interval_) {
    cause = RebuildCause::interval;
  } else if (cause == RebuildCause::none && is_same_set && has_outgrown_skin(positions, box)) {
    cause = RebuildCause::displacement;
  }
  const bool has_failed = !ok || !is_same_set;
  const int num_ranks = communicator.num_ranks();
  // The largest (num_ranks - rank) of the failed ranks names the lowest of them; 0 says that none failed.
  std::array<std::int64_t, 2> ballot{static_cast<std::int64_t>(cause),
                                     has_failed ? num_ranks - communicator.rank() : 0};
  communicator.all_reduce(std::span<std::int64_t>(ballot), Reduction::max);
  if (ballot[1] > 0) {
    const auto failed = num_ranks - ballot[1];
    if (!is_same_set) {
      fail(Reach::collective, "rank {} has {} atoms, epoch {} began with {}: declare the migration",
           communicator.rank(), positions.size(), epoch_, reference_.size());
    }
    fail(Reach::collective, "rank {} reported a failure before the rebuild vote of epoch {}", failed, epoch_);
  }
  return static_cast<RebuildCause>(ballot[0]);
}

void TopologyCache::remember(std::span<const Vec3> positions, const Box& box)
{
  reference_.assign(positions.begin(), positions.end());
  reference_box_ = box;
  age_ = 0;
  ++epoch_;
}

/// With A the map of the cell and u_i what atom i moved on top of it, a pair outside the list (|v| > cutoff + skin)
/// is now at |A v + u_i - u_j| >= stretch * (cutoff + skin) - 2 max|u|, which must exceed the cutoff. A stretch above 1
/// counts as stretch * skin only, because a list of a smaller cutoff gains less.
bool TopologyCache::has_outgrown_skin(std::span<const Vec3> positions, const Box& box) const
{
  if (box.periodic() != reference_box_.periodic()) return true;
  const Deformation deformation(reference_box_, box);
  const double stretch = deformation.smallest_stretch();
  const double left_of_skin = stretch < 1 ? stretch * (largest_cutoff_ + skin_) - largest_cutoff_ : stretch * skin_;
  const double allowance = left_of_skin - kRoundingMargin;
  if (!(allowance > 0)) return true;
  for (std::size_t row = 0; row < positions.size(); ++row) {
    const Vec3 moved = positions[row] - deformation.carry(reference_[row]);
    if (!(4 * dot(moved, moved) < allowance * allowance)) return true;  // also for a position that is not a number
  }
  return false;
}

}  // namespace tessera
