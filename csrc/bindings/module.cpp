// SPDX-License-Identifier: MIT
// tessera._C: what Python needs of the C++ libraries. Loading it registers the operators with torch.
#include "bindings.hpp"
#include "tessera/base/error.hpp"
#include "tessera/comm/nccl.hpp"
#include "tessera/device/gpu.hpp"

PYBIND11_MODULE(_C, m)
{
  m.doc() = "Tessera's C++ libraries: search, passports, artifacts, halo exchanges, the engine, cuts.";
  pybind11::register_exception<tessera::Error>(m, "TesseraError", PyExc_RuntimeError);
  m.attr("HAS_CUDA") = tessera::has_cuda();
  m.attr("HAS_NCCL") = tessera::has_nccl();
  m.def("num_gpus", &tessera::num_gpus, "CUDA devices that this process sees; 0 in a build without CUDA.");
  tessera::register_search(m);
  tessera::register_exchange(m);
  tessera::register_model(m);
  tessera::register_engine(m);
  tessera::register_virtual_ranks(m);
  tessera::register_plan(m);
}
