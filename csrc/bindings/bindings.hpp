// SPDX-License-Identifier: MIT
#pragma once

#include <pybind11/pybind11.h>

namespace tessera {

void register_search(pybind11::module_& m);
void register_model(pybind11::module_& m);
void register_exchange(pybind11::module_& m);
void register_engine(pybind11::module_& m);
void register_virtual_ranks(pybind11::module_& m);
void register_plan(pybind11::module_& m);

}  // namespace tessera
