// SPDX-License-Identifier: MIT
#include "tessera/engine/engine.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "engine_options.hpp"

namespace py = pybind11;

namespace tessera {

namespace {

using bindings::Array;
using bindings::as_span;
using bindings::as_vectors;
using bindings::to_array;

py::dict compute(Engine& engine, const Array<double>& positions, const Array<std::int32_t>& elements,
                 const Array<std::int64_t>& ids, const Mat3& cell, const std::array<bool, 3>& periodic,
                 bool is_reordered, bool wants_atom_virial, long charge, long multiplicity)
{
  AtomsInput atoms;
  atoms.positions = as_vectors(positions, "positions");
  atoms.elements = as_span(elements);
  atoms.ids = as_span(ids);
  atoms.box = Box(cell, Vec3{}, periodic);
  atoms.is_reordered = is_reordered;
  atoms.wants_atom_virials = wants_atom_virial;
  atoms.wants_atom_energies = true;
  atoms.charge = charge;
  atoms.multiplicity = multiplicity;
  const StepResult* result = nullptr;
  {
    const py::gil_scoped_release release;
    result = &engine.compute(atoms);
  }
  py::dict out;
  out["energy"] = result->energy;
  out["forces"] = to_array<double>(result->forces, {3});
  out["virial"] = result->virial;
  out["energies"] = to_array<double>(result->atom_energies);
  if (wants_atom_virial) out["virials"] = to_array<double>(result->atom_virials, {3, 3});
  return out;
}

}  // namespace

void register_engine(py::module_& m)
{
  py::class_<Engine>(m, "Engine", "Energy, forces and virial of one system with a compiled artifact, on one rank.")
      .def(py::init([](const std::string& path, const py::kwargs& options) {
             return std::make_unique<Engine>(path, bindings::read_engine_options(options), make_serial_communicator());
           }),
           py::arg("path"))
      .def("compute", &compute, py::arg("positions"), py::arg("elements"), py::arg("ids"), py::arg("cell"),
           py::arg("periodic"), py::arg("is_reordered"), py::arg("wants_atom_virial"), py::arg("charge"),
           py::arg("multiplicity"))
      .def("time_model", &Engine::time_model, py::arg("repeats"), py::call_guard<py::gil_scoped_release>(),
           "Median seconds of the compiled model alone on the last step's inputs.")
      .def("report", [](const Engine& engine) { return bindings::to_dict(engine.report()); })
      .def_property_readonly("device", &Engine::device, "\"cpu\", or the device and its name.")
      .def_property_readonly("passport_json", [](const Engine& engine) { return engine.passport().json; })
      .def_property_readonly("elements", [](const Engine& engine) { return engine.passport().elements; })
      .def_property_readonly("cutoffs", [](const Engine& engine) { return engine.passport().cutoffs; });
}

}  // namespace tessera
