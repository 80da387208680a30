// SPDX-License-Identifier: MIT
#include <cmath>

#include "tessera/base/error.hpp"
#include "tessera/search/cell_search.hpp"
#include "tessera/search/edge_vector.hpp"

namespace tessera {
namespace {

// Fraction of a cell by which the range of images is widened: far above the rounding of a fractional coordinate,
// and free of consequence, because every image is tested by its distance.
constexpr double kImageMargin = 1e-3;

struct ImageRange {
  Shift first{}, last{};
};

/// All shifts that may bring the sender within the cutoff: |fraction_k - shift_k| <= cutoff / height_k.
ImageRange images_within(const Vec3& separation, const Box& box, double cutoff)
{
  const Vec3 fraction = box.to_fractional(box.origin() + separation);
  ImageRange range;
  for (int k = 0; k < 3; ++k) {
    if (!box.periodic()[k]) continue;
    const double reach = cutoff / box.height(k) + kImageMargin;
    range.first[k] = static_cast<std::int32_t>(std::ceil(fraction[k] - reach));
    range.last[k] = static_cast<std::int32_t>(std::floor(fraction[k] + reach));
  }
  return range;
}

}  // namespace

NeighborList brute_force_search(std::span<const Vec3> positions, std::int64_t num_receivers, const Box& box,
                                double cutoff)
{
  const auto num_atoms = static_cast<std::int64_t>(positions.size());
  TESSERA_REQUIRE(num_receivers >= 0 && num_receivers <= num_atoms, "{} receivers among {} positions", num_receivers,
                  num_atoms);
  TESSERA_REQUIRE(std::isfinite(cutoff) && cutoff > 0, "the cutoff must be positive, got {} Å", cutoff);
  NeighborList list;
  list.cutoff = cutoff;
  list.num_receivers = num_receivers;
  for (std::int64_t i = 0; i < num_receivers; ++i) {
    for (std::int64_t j = 0; j < num_atoms; ++j) {
      const auto [first, last] = images_within(positions[i] - positions[j], box, cutoff);
      Shift s{};
      for (s[0] = first[0]; s[0] <= last[0]; ++s[0]) {
        for (s[1] = first[1]; s[1] <= last[1]; ++s[1]) {
          for (s[2] = first[2]; s[2] <= last[2]; ++s[2]) {
            if (i == j && s == Shift{}) continue;
            const Vec3 v = edge_vector(positions[i], positions[j], s, box);
            if (dot(v, v) > cutoff * cutoff) continue;
            list.receiver.push_back(i);
            list.sender.push_back(j);
            list.shift.push_back(s);
          }
        }
      }
    }
  }
  return list;
}

}  // namespace tessera
