// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "tessera/base/box.hpp"

namespace tessera {

/// How a cell has changed since a reference: the linear map that carries reference positions along with it.
///
/// Axes that are not periodic take no part: their lattice vectors are bookkeeping (LAMMPS shrink-wraps them), so the
/// map leaves the reference's vectors along them as they are.
class Deformation {
 public:
  /// @pre both boxes have the same periodic axes.
  Deformation(const Box& reference, const Box& now);

  /// Where a reference position lies after the deformation, Å. The identity is exact.
  [[nodiscard]] Vec3 carry(const Vec3& position) const;

  /// Smallest factor by which the map changes any length; 1 for an unchanged cell, less under compression or shear.
  [[nodiscard]] double smallest_stretch() const noexcept { return smallest_stretch_; }

 private:
  bool is_identity_ = true;
  Box from_, to_;
  double smallest_stretch_ = 1;
};

}  // namespace tessera
