// SPDX-License-Identifier: MIT
#include "tessera/engine/row_order.hpp"

#include <algorithm>

#include "tessera/base/error.hpp"

namespace tessera {

void RowOrder::assign(std::span<const std::int64_t> ids, std::span<const std::int32_t> elements,
                      std::span<const Vec3> positions)
{
  TESSERA_REQUIRE(ids.size() == positions.size() && elements.size() == positions.size(),
                  "expected one id and one element for each of {} positions, found {} ids and {} elements",
                  positions.size(), ids.size(), elements.size());
  num_caller_ = ids.size();
  caller_.clear();
  ids_.clear();
  elements_.clear();
  row_of_id_.clear();
  for (std::size_t k = 0; k < ids.size(); ++k) {
    if (elements[k] < 0) continue;
    row_of_id_.emplace_back(ids[k], static_cast<std::int64_t>(caller_.size()));
    caller_.push_back(static_cast<std::int64_t>(k));
    ids_.push_back(ids[k]);
    elements_.push_back(elements[k]);
  }
  std::sort(row_of_id_.begin(), row_of_id_.end());
  for (std::size_t k = 1; k < row_of_id_.size(); ++k) {
    TESSERA_REQUIRE(row_of_id_[k].first != row_of_id_[k - 1].first,
                    "two atoms have the id {}: every atom needs an id of its own", row_of_id_[k].first);
  }
  update(positions);
}

bool RowOrder::relabel(std::span<const std::int64_t> ids, std::span<const std::int32_t> elements)
{
  std::vector<std::int64_t> caller(caller_.size(), -1);
  std::size_t num_found = 0;
  for (std::size_t k = 0; k < ids.size(); ++k) {
    if (elements[k] < 0) continue;
    const auto found = std::lower_bound(row_of_id_.begin(), row_of_id_.end(), std::pair<std::int64_t, std::int64_t>{ids[k], 0});
    if (found == row_of_id_.end() || found->first != ids[k]) return false;
    const std::int64_t row = found->second;
    if (elements_[row] != elements[k] || caller[row] >= 0) return false;
    caller[row] = static_cast<std::int64_t>(k);
    ++num_found;
  }
  if (num_found != caller_.size()) return false;
  caller_ = std::move(caller);
  num_caller_ = ids.size();
  return true;
}

void RowOrder::update(std::span<const Vec3> positions)
{
  TESSERA_REQUIRE(positions.size() == num_caller_, "expected positions of {} atoms, found {}", num_caller_, positions.size());
  positions_.resize(caller_.size());
  for (std::size_t row = 0; row < caller_.size(); ++row) positions_[row] = positions[caller_[row]];
}

}  // namespace tessera
