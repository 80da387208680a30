// SPDX-License-Identifier: MIT
#include "bindings.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstring>

#include "tessera/engine/engine.hpp"

namespace py = pybind11;

namespace tessera {

namespace {

template <typename Scalar>
using Array = py::array_t<Scalar, py::array::c_style | py::array::forcecast>;

template <typename Value>
py::array_t<double> to_numpy(const std::vector<Value>& values, std::vector<py::ssize_t> row_shape)
{
  std::vector<py::ssize_t> shape{static_cast<py::ssize_t>(values.size())};
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  py::array_t<double> out(shape);
  if (!values.empty()) std::memcpy(out.mutable_data(), values.data(), values.size() * sizeof(Value));
  return out;
}

py::dict compute(Engine& engine, const Array<double>& positions, const Array<std::int32_t>& elements,
                 const Array<std::int64_t>& ids, const Mat3& cell, const std::array<bool, 3>& periodic, bool is_reordered,
                 bool wants_atom_virial, long charge, long multiplicity)
{
  if (positions.ndim() != 2 || positions.shape(1) != 3 || elements.ndim() != 1 || ids.ndim() != 1) {
    throw py::value_error("expected positions [N, 3], elements [N] and ids [N]");
  }
  const auto num_atoms = static_cast<std::size_t>(positions.shape(0));
  AtomsInput atoms;
  atoms.positions = {reinterpret_cast<const Vec3*>(positions.data()), num_atoms};
  atoms.elements = {elements.data(), static_cast<std::size_t>(elements.shape(0))};
  atoms.ids = {ids.data(), static_cast<std::size_t>(ids.shape(0))};
  atoms.box = Box(cell, Vec3{}, periodic);
  atoms.is_reordered = is_reordered;
  atoms.wants_atom_virial = wants_atom_virial;
  atoms.charge = charge;
  atoms.multiplicity = multiplicity;
  const StepResult* result = nullptr;
  {
    const py::gil_scoped_release release;
    result = &engine.compute(atoms);
  }
  py::dict out;
  out["energy"] = result->energy;
  out["forces"] = to_numpy(result->forces, {3});
  out["virial"] = result->virial;
  out["energies"] = to_numpy(result->atom_energies, {});
  if (wants_atom_virial) out["virials"] = to_numpy(result->atom_virials, {3, 3});
  return out;
}

py::dict report(const Engine& engine)
{
  const EngineReport& report = engine.report();
  py::dict out;
  out["steps"] = report.steps;
  out["rebuilds"] = report.rebuilds;
  out["num_edges"] = report.num_edges;
  out["search_seconds"] = report.search_seconds;
  out["model_seconds"] = report.model_seconds;
  out["total_seconds"] = report.total_seconds;
  return out;
}

}  // namespace

void register_engine(py::module_& m)
{
  py::class_<Engine>(m, "Engine", "Energy, forces and virial of one system with a compiled artifact, on one rank.")
      .def(py::init([](const std::string& path, double skin, std::int64_t rebuild, int num_threads) {
             return std::make_unique<Engine>(path, EngineOptions{skin, rebuild, num_threads}, make_serial_communicator());
           }),
           py::arg("path"), py::arg("skin") = 1.0, py::arg("rebuild") = 0, py::arg("num_threads") = 0)
      .def("compute", &compute, py::arg("positions"), py::arg("elements"), py::arg("ids"), py::arg("cell"),
           py::arg("periodic"), py::arg("is_reordered"), py::arg("wants_atom_virial"), py::arg("charge"),
           py::arg("multiplicity"))
      .def("report", &report)
      .def_property_readonly("passport_json", [](const Engine& engine) { return engine.passport().json; })
      .def_property_readonly("elements", [](const Engine& engine) { return engine.passport().elements; })
      .def_property_readonly("cutoffs", [](const Engine& engine) { return engine.passport().cutoffs; });
}

}  // namespace tessera
