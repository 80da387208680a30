// SPDX-License-Identifier: MIT
#include "tessera/search/wrapped_positions.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

// Rounding steps that a wrapped position or a cell coordinate goes through, each of half an epsilon, rounded up.
constexpr double kRoundingSteps = 64;

double length(const Vec3& v) { return std::sqrt(dot(v, v)); }

void widen(PositionExtent& extent, const Vec3& r, const Shift& wrap, const Box& box)
{
  for (int a = 0; a < 3; ++a) {
    extent.coordinate = std::max({extent.coordinate, std::abs(r[a]), std::abs(r[a] - box.origin()[a])});
    extent.wrap[a] = std::max(extent.wrap[a], std::abs(static_cast<double>(wrap[a])));
  }
}

}  // namespace

double bound_rounding(const PositionExtent& extent, const Box& box, double distance)
{
  double edges = 1, reach_of_images = 0;
  for (int k = 0; k < 3; ++k) {
    const double edge = length(box.cell()[k]);
    edges *= edge;
    if (!box.periodic()[k]) continue;
    reach_of_images += (std::max(distance / box.height(k), extent.wrap[k]) + 2) * edge;
  }
  // The inverse of a flat cell is that much less accurate.
  const double condition = std::max(1.0, edges / box.volume());
  return kRoundingSteps * std::numeric_limits<double>::epsilon() * condition *
         (extent.coordinate + reach_of_images + distance);
}

WrappedPosition wrap_position(std::size_t row, const Vec3& r, const Box& box)
{
  TESSERA_REQUIRE(std::isfinite(r[0]) && std::isfinite(r[1]) && std::isfinite(r[2]),
                  "the position of row {} is not finite ({}, {}, {}): the dynamics has diverged or the input is bad",
                  row, r[0], r[1], r[2]);
  WrappedPosition wrapped{box.to_fractional(r), {}};
  for (int k = 0; k < 3; ++k) {
    if (!box.periodic()[k]) continue;
    const double image = std::floor(wrapped.fraction[k]);
    TESSERA_REQUIRE(std::abs(image) < kFurthestImage,
                    "row {} lies {} cells away along axis {}, expected fewer than {}: wrap the positions", row, image,
                    k, kFurthestImage);
    wrapped.wrap[k] = static_cast<std::int32_t>(image);
    wrapped.fraction[k] -= image;
  }
  return wrapped;
}

WrappedPositions wrap_positions(std::span<const Vec3> positions, const Box& box, double distance)
{
  WrappedPositions wrapped;
  wrapped.wraps.reserve(positions.size());
  wrapped.fractions.reserve(positions.size());
  PositionExtent extent;
  for (std::size_t row = 0; row < positions.size(); ++row) {
    const auto [fraction, wrap] = wrap_position(row, positions[row], box);
    wrapped.fractions.push_back(fraction);
    wrapped.wraps.push_back(wrap);
    widen(extent, positions[row], wrap, box);
  }
  wrapped.rounding = bound_rounding(extent, box, distance);
  return wrapped;
}

}  // namespace tessera
