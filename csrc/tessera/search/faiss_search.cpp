// SPDX-License-Identifier: MIT
#include "tessera/search/faiss_search.hpp"

#include <faiss/IndexFlat.h>
#include <faiss/impl/AuxIndexStructures.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.hpp"
#include "tessera/search/candidate_selection.hpp"
#include "tessera/search/chunked_search.hpp"
#include "tessera/search/edge_vector.hpp"
#include "tessera/search/wrapped_positions.hpp"

namespace tessera {
namespace {

constexpr std::int64_t kReceiversPerChunk = 256;
constexpr double kFurthest = 1e17;  // Å; squares stay far below the largest float32

// FAISS may compute d^2 as |x|^2 + |y|^2 - 2 x.y, which loses as many digits as |x|^2 exceeds d^2.
constexpr double kFloatRoundingSteps = 32;

/// A sender under one image of the wrapped cell.
struct Image {
  std::int64_t row = 0;
  Shift image{};
};

/// The points that FAISS sees: float32, relative to the middle of the receivers.
struct PointCloud {
  std::vector<float> queries, points;
  std::vector<Image> images;
  double extent = 0;  // Å, largest coordinate

  void append(std::vector<float>& to, const Vec3& r)
  {
    for (const double x : r) {
      extent = std::max(extent, std::abs(x));
      to.push_back(static_cast<float>(x));
    }
  }
};

PointCloud make_cloud(const WrappedPositions& wrapped, std::int64_t num_receivers, const Box& box, double reach)
{
  const std::span<const Vec3> fractions(wrapped.fractions);
  const FractionBox bounds = bounding_box(fractions.subspan(0, num_receivers));
  const Vec3 margin = fraction_margin(reach, box);
  const Vec3 middle = box.to_cartesian(0.5 * (bounds.low + bounds.high));
  PointCloud cloud;
  for (std::int64_t i = 0; i < num_receivers; ++i) {
    cloud.append(cloud.queries, box.to_cartesian(fractions[i]) - middle);
  }
  for (std::size_t j = 0; j < fractions.size(); ++j) {
    Shift first{}, last{};
    for (int k = 0; k < 3; ++k) {
      if (!box.periodic()[k]) continue;
      first[k] = static_cast<std::int32_t>(std::ceil(bounds.low[k] - margin[k] - fractions[j][k]));
      last[k] = static_cast<std::int32_t>(std::floor(bounds.high[k] + margin[k] - fractions[j][k]));
    }
    Shift s{};
    for (s[0] = first[0]; s[0] <= last[0]; ++s[0]) {
      for (s[1] = first[1]; s[1] <= last[1]; ++s[1]) {
        for (s[2] = first[2]; s[2] <= last[2]; ++s[2]) {
          cloud.images.push_back({static_cast<std::int64_t>(j), s});
          cloud.append(cloud.points, box.to_cartesian(fractions[j]) + box.translation(s) - middle);
        }
      }
    }
  }
  return cloud;
}

/// Edges of one chunk, in any order within a receiver: chunked_search() sorts them.
NeighborList search_chunk(std::span<const Vec3> positions, std::int64_t num_receivers, const Box& box, double cutoff)
{
  NeighborList list;
  list.cutoff = cutoff;
  list.num_receivers = num_receivers;
  const WrappedPositions wrapped = wrap_positions(positions, box, cutoff);
  const double reach = cutoff + wrapped.rounding;
  const PointCloud cloud = make_cloud(wrapped, num_receivers, box, reach);
  TESSERA_REQUIRE(cloud.extent < kFurthest, "atoms lie {} Å apart, the FAISS search allows {}: use the search 'cells'",
                  cloud.extent, kFurthest);
  const double radius_sq = reach * reach + kFloatRoundingSteps * std::numeric_limits<float>::epsilon() *
                                               (cloud.extent * cloud.extent + reach * reach);
  faiss::IndexFlatL2 index(3);
  index.add(static_cast<faiss::Index::idx_t>(cloud.images.size()), cloud.points.data());
  faiss::RangeSearchResult result(num_receivers);
  index.range_search(num_receivers, cloud.queries.data(), static_cast<float>(radius_sq), &result);

  for (std::int64_t i = 0; i < num_receivers; ++i) {
    for (std::size_t n = result.lims[i]; n < result.lims[i + 1]; ++n) {
      const auto& [j, image] = cloud.images[result.labels[n]];
      Shift shift{};
      for (int k = 0; k < 3; ++k) shift[k] = image[k] + wrapped.wraps[i][k] - wrapped.wraps[j][k];
      if (i == j && shift == Shift{}) continue;
      const Vec3 v = edge_vector(positions[i], positions[j], shift, box);
      if (dot(v, v) > cutoff * cutoff) continue;
      list.receiver.push_back(i);
      list.sender.push_back(j);
      list.shift.push_back(shift);
    }
  }
  return list;
}

}  // namespace

NeighborList faiss_search(std::span<const Vec3> positions, std::int64_t num_receivers, const Box& box, double cutoff)
{
  TESSERA_REQUIRE(std::isfinite(cutoff) && cutoff > 0, "the cutoff must be positive, got {} Å", cutoff);
  return chunked_search(positions, num_receivers, box, cutoff, kReceiversPerChunk, search_chunk);
}

}  // namespace tessera
