// SPDX-License-Identifier: MIT
#include "tessera/search/wrapped_positions.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

constexpr double kFurthestImage = 5e8;  // a shift is a difference of two wraps and must fit 32 bits

// Rounding steps that a wrapped position or a cell coordinate goes through, each of half an epsilon, rounded up.
constexpr double kRoundingSteps = 64;

double length(const Vec3& v) { return std::sqrt(dot(v, v)); }

double bound_rounding(std::span<const Vec3> positions, const std::vector<Shift>& wraps, const Box& box, double distance)
{
  double extent = 0;
  for (const Vec3& r : positions) {
    for (int a = 0; a < 3; ++a) extent = std::max({extent, std::abs(r[a]), std::abs(r[a] - box.origin()[a])});
  }
  double edges = 1, reach_of_images = 0;
  for (int k = 0; k < 3; ++k) {
    const double edge = length(box.cell()[k]);
    edges *= edge;
    if (!box.periodic()[k]) continue;
    double images = distance / box.height(k) + 2;
    for (const Shift& wrap : wraps) images = std::max(images, std::abs(static_cast<double>(wrap[k])) + 2);
    reach_of_images += images * edge;
  }
  // The inverse of a flat cell is that much less accurate.
  const double condition = std::max(1.0, edges / box.volume());
  return kRoundingSteps * std::numeric_limits<double>::epsilon() * condition * (extent + reach_of_images + distance);
}

}  // namespace

WrappedPositions wrap_positions(std::span<const Vec3> positions, const Box& box, double distance)
{
  WrappedPositions wrapped;
  wrapped.wraps.resize(positions.size());
  wrapped.fractions.resize(positions.size());
  for (std::size_t row = 0; row < positions.size(); ++row) {
    const Vec3& r = positions[row];
    TESSERA_REQUIRE(std::isfinite(r[0]) && std::isfinite(r[1]) && std::isfinite(r[2]),
                    "the position of row {} is not finite ({}, {}, {}): the dynamics has diverged or the input is bad",
                    row, r[0], r[1], r[2]);
    Vec3& fraction = wrapped.fractions[row];
    fraction = box.to_fractional(r);
    for (int k = 0; k < 3; ++k) {
      if (!box.periodic()[k]) continue;
      const double image = std::floor(fraction[k]);
      TESSERA_REQUIRE(std::abs(image) < kFurthestImage,
                      "row {} lies {} cells away along axis {}, expected fewer than {}: wrap the positions", row, image,
                      k, kFurthestImage);
      wrapped.wraps[row][k] = static_cast<std::int32_t>(image);
      fraction[k] -= image;
    }
  }
  wrapped.rounding = bound_rounding(positions, wrapped.wraps, box, distance);
  return wrapped;
}

}  // namespace tessera
