// SPDX-License-Identifier: MIT
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstring>
#include <span>
#include <vector>

#include "tessera/base/types.hpp"

namespace tessera::bindings {

/// A C-contiguous array; numpy converts (and copies) only what is not.
template <typename Scalar>
using Array = pybind11::array_t<Scalar, pybind11::array::c_style | pybind11::array::forcecast>;

template <typename Scalar>
std::span<const Scalar> as_span(const Array<Scalar>& array)
{
  return {array.data(), static_cast<std::size_t>(array.size())};
}

/// @throws ValueError unless the array is [any, 3].
inline std::span<const Vec3> as_vectors(const Array<double>& array, const char* name)
{
  if (array.ndim() != 2 || array.shape(1) != 3) {
    throw pybind11::value_error(std::string(name) + ": expected an array of shape [rows, 3], found " +
                                std::to_string(array.ndim()) + " dimensions and " + std::to_string(array.size()) +
                                " values");
  }
  return {reinterpret_cast<const Vec3*>(array.data()), static_cast<std::size_t>(array.shape(0))};
}

/// Copies rows of `Scalar` into an array of shape [rows, row_shape...].
template <typename Scalar, typename Row>
pybind11::array_t<Scalar> to_array(const std::vector<Row>& rows, const std::vector<pybind11::ssize_t>& row_shape = {})
{
  std::vector<pybind11::ssize_t> shape = row_shape;
  const pybind11::ssize_t width = sizeof(Row) / sizeof(Scalar);
  if (row_shape.size() == 1 && row_shape[0] != width) {  // flat pairs, as in the ranges of EdgeIndex
    shape.insert(shape.begin(), static_cast<pybind11::ssize_t>(rows.size()) / row_shape[0]);
  } else {
    shape.insert(shape.begin(), static_cast<pybind11::ssize_t>(rows.size()));
  }
  pybind11::array_t<Scalar> out(shape);
  if (!rows.empty()) std::memcpy(out.mutable_data(), rows.data(), rows.size() * sizeof(Row));
  return out;
}

}  // namespace tessera::bindings
