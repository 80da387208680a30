// SPDX-License-Identifier: MIT
#include "arrays.hpp"
#include "bindings.hpp"
#include "tessera/model/artifact.hpp"

namespace py = pybind11;

namespace tessera {
namespace {

using bindings::Array;

/// halo_elements [H], edge_vectors [E, 3] (Å), receiver [E], sender [E].
using ListArrays = std::tuple<Array<std::int32_t>, Array<double>, Array<std::int64_t>, Array<std::int64_t>>;

py::tuple run(Artifact& artifact, const Array<std::int32_t>& elements, const std::vector<ListArrays>& lists,
              long charge, long multiplicity, std::int64_t plan)
{
  ModelInput input;
  input.plan_handle = plan;
  input.elements = bindings::as_span(elements);
  input.charge = charge;
  input.multiplicity = multiplicity;
  for (const auto& [halo_elements, edge_vectors, receiver, sender] : lists) {
    input.lists.push_back({bindings::as_span(halo_elements), bindings::as_vectors(edge_vectors, "edge_vectors"),
                           bindings::as_span(receiver), bindings::as_span(sender)});
  }
  ModelOutput output;
  {
    const py::gil_scoped_release release;
    output = artifact.run(input);
  }
  py::list gradients;
  for (const auto& gradient : output.edge_gradients) gradients.append(bindings::to_array<double>(gradient, {3}));
  return py::make_tuple(bindings::to_array<double>(output.atom_energies), gradients);
}

void register_memory(py::module_& m)
{
  py::class_<MemoryModel>(m, "MemoryModel", "Peak memory of one run, linear in its counts.")
      .def_readonly("bytes_per_row", &MemoryModel::bytes_per_row)
      .def_readonly("bytes_per_halo_row", &MemoryModel::bytes_per_halo_row)
      .def_readonly("bytes_per_edge", &MemoryModel::bytes_per_edge)
      .def_readonly("bytes", &MemoryModel::bytes)
      .def_readonly("measured", &MemoryModel::measured)
      .def(
          "predict",
          [](const MemoryModel& self, std::int64_t rows, const std::vector<std::int64_t>& halo_rows,
             const std::vector<std::int64_t>& edges) { return self.predict(rows, halo_rows, edges); },
          py::arg("rows"), py::arg("halo_rows"), py::arg("edges"),
          "Bytes of a run on `rows` owned rows and, for each list, so many halo rows and edges.");
}

void register_passport(py::module_& m)
{
  py::class_<Passport>(m, "Passport", "What an artifact says of itself.")
      .def_readonly("format", &Passport::format)
      .def_readonly("elements", &Passport::elements)
      .def_readonly("cutoffs", &Passport::cutoffs)
      .def_readonly("dtype", &Passport::dtype)
      .def_readonly("matmul", &Passport::matmul)
      .def_readonly("device", &Passport::device)
      .def_readonly("device_capability", &Passport::device_capability)
      .def_readonly("torch_version", &Passport::torch_version)
      .def_readonly("tessera_version", &Passport::tessera_version)
      .def_readonly("weights_sha256", &Passport::weights_sha256)
      .def_readonly("uses_charge", &Passport::uses_charge)
      .def_readonly("charge_range", &Passport::charge_range)
      .def_readonly("multiplicity_range", &Passport::multiplicity_range)
      .def_readonly("num_layers", &Passport::num_layers)
      .def_readonly("num_messages", &Passport::num_messages)
      .def_readonly("receptive_radius", &Passport::receptive_radius)
      .def_readonly("recompute", &Passport::recompute)
      .def_readonly("memory", &Passport::memory)
      .def_property_readonly("largest_step",
                             [](const Passport& passport) -> py::object {
                               const auto& largest = passport.largest_step;
                               if (!largest) return py::none();
                               return py::make_tuple(largest->rows, largest->halo_rows, largest->edges);
                             })
      .def_readonly("json", &Passport::json)
      .def_property_readonly("largest_cutoff", &Passport::largest_cutoff);
  m.def("read_passport", &read_passport, py::arg("path"),
        "Read and check the passport of an artifact; TesseraError says what to do if it does not fit this build.");
}

}  // namespace

void register_model(py::module_& m)
{
  register_memory(m);
  register_passport(m);
  py::class_<Artifact>(m, "Artifact", "A loaded artifact: pads the inputs, runs, strips the padding.")
      .def(py::init<const std::string&, int, int>(), py::arg("path"), py::arg("num_threads") = 0,
           py::arg("local_rank") = 0)
      .def_property_readonly("passport", &Artifact::passport, py::return_value_policy::reference_internal)
      .def_property_readonly("device", &Artifact::device, "\"cpu\", or the device and its name.")
      .def(
          "run", &run, py::arg("elements"), py::arg("lists"), py::arg("charge") = 0, py::arg("multiplicity") = 1,
          py::arg("plan") = 0,
          "(atom energies [N] in eV, one dE/d(edge vector) [E, 3] in eV/Å a list) of one rank's rows; each list is\n"
          "(halo_elements [H], edge_vectors [E, 3] in Å, receiver [E] ascending, sender [E], halo row k being N + k).");
}

}  // namespace tessera
