// SPDX-License-Identifier: MIT
// The engine on many ranks inside one process: each rank is a thread with an engine of its own.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "engine_options.hpp"
#include "tessera/base/error.hpp"
#include "tessera/comm/virtual.hpp"

namespace py = pybind11;

namespace tessera {

namespace {

using bindings::Array;

/// Frames of one system and who holds which atom in each; results by atom.
struct Trajectory {
  std::int64_t num_frames = 0, num_atoms = 0;
  const Vec3* positions = nullptr;         // [frames, atoms]
  const Mat3* cells = nullptr;             // [frames]
  const std::int32_t* owners = nullptr;    // [frames, atoms] the rank whose caller holds the atom
  const std::int32_t* elements = nullptr;  // [atoms]
  std::array<bool, 3> periodic{};
  long charge = 0;

  std::vector<std::vector<double>> energy;  // [frames][ranks]
  std::vector<std::vector<Mat3>> virial;    // [frames][ranks]
  std::vector<Vec3> forces;                 // [frames, atoms]
  std::vector<double> atom_energies;        // [frames, atoms]
  std::vector<Mat3> atom_virials;           // [frames, atoms]
  std::vector<EngineReport> reports;        // [ranks]
  std::string load;                         // describe_load() of the whole
};

void run_frame(Trajectory& all, std::int64_t frame, Engine& engine, int rank)
{
  std::vector<Vec3> positions;
  std::vector<std::int32_t> elements;
  std::vector<std::int64_t> ids;
  const std::int64_t first = frame * all.num_atoms;
  // Callers hold their atoms in descending order, so that no test passes because two orders happen to agree.
  for (std::int64_t k = all.num_atoms - 1; k >= 0; --k) {
    if (all.owners[first + k] != rank) continue;
    positions.push_back(all.positions[first + k]);
    elements.push_back(all.elements[k]);
    ids.push_back(k + 1);
  }
  AtomsInput atoms;
  atoms.positions = positions;
  atoms.elements = elements;
  atoms.ids = ids;
  atoms.box = Box(all.cells[frame], Vec3{}, all.periodic);
  atoms.is_reordered = true;
  atoms.wants_atom_virials = true;
  atoms.wants_atom_energies = true;
  atoms.charge = all.charge;
  const StepResult& result = engine.compute(atoms);
  all.energy[frame][rank] = result.energy;
  all.virial[frame][rank] = result.virial;
  for (std::size_t k = 0; k < ids.size(); ++k) {
    const std::int64_t place = first + ids[k] - 1;
    all.forces[place] = result.forces[k];
    all.atom_energies[place] = result.atom_energies[k];
    all.atom_virials[place] = result.atom_virials[k];
  }
}

void run_all(Trajectory& all, const std::string& path, const EngineOptions& options, int num_ranks)
{
  all.energy.assign(all.num_frames, std::vector<double>(num_ranks));
  all.virial.assign(all.num_frames, std::vector<Mat3>(num_ranks));
  all.forces.resize(all.num_frames * all.num_atoms);
  all.atom_energies.resize(all.num_frames * all.num_atoms);
  all.atom_virials.resize(all.num_frames * all.num_atoms);
  all.reports.resize(num_ranks);
  run_virtual_ranks(num_ranks, [&](const std::shared_ptr<Communicator>& communicator) {
    Engine engine(path, options, communicator);
    const int rank = communicator->rank();
    for (std::int64_t frame = 0; frame < all.num_frames; ++frame) run_frame(all, frame, engine, rank);
    all.reports[rank] = engine.report();
    const std::string load = describe_load({}, engine.report(), *communicator);
    if (rank == 0) all.load = load;
  });
}

py::dict compute_on_virtual_ranks(const std::string& path, int num_ranks, const Array<double>& positions,
                                  const Array<std::int32_t>& owners, const Array<std::int32_t>& elements,
                                  const std::vector<Mat3>& cells, const std::array<bool, 3>& periodic, long charge,
                                  const py::kwargs& options)
{
  Trajectory all;
  all.num_frames = static_cast<std::int64_t>(cells.size());
  all.num_atoms = static_cast<std::int64_t>(elements.size());
  if (positions.ndim() != 3 || positions.size() != all.num_frames * all.num_atoms * 3 ||
      owners.size() != all.num_frames * all.num_atoms) {
    throw py::value_error(
        "expected positions [frames, atoms, 3], owners [frames, atoms], elements [atoms] and one cell a frame");
  }
  all.positions = reinterpret_cast<const Vec3*>(positions.data());
  all.cells = cells.data();
  all.owners = owners.data();
  all.elements = elements.data();
  all.periodic = periodic;
  all.charge = charge;
  const EngineOptions engine_options = bindings::read_engine_options(options);
  {
    const py::gil_scoped_release release;
    run_all(all, path, engine_options, num_ranks);
  }
  py::list reports;
  for (const EngineReport& report : all.reports) reports.append(bindings::to_dict(report));
  py::dict out;
  out["energy"] = all.energy;
  out["virial"] = all.virial;
  out["forces"] = bindings::to_array<double>(all.forces, {3});
  out["energies"] = bindings::to_array<double>(all.atom_energies);
  out["virials"] = bindings::to_array<double>(all.atom_virials, {3, 3});
  out["reports"] = reports;
  out["load"] = all.load;
  return out;
}

}  // namespace

void register_virtual_ranks(py::module_& m)
{
  m.def("compute_on_virtual_ranks", &compute_on_virtual_ranks,
        "Run frames of one system on ranks that are threads of this process; `owners` says which rank's caller holds "
        "each atom in each frame. Returns shares of energy and virial [frames][ranks], forces, atom energies and atom "
        "virials "
        "by frame and atom, and each rank's report.",
        py::arg("path"), py::arg("num_ranks"), py::arg("positions"), py::arg("owners"), py::arg("elements"),
        py::arg("cells"), py::arg("periodic"), py::arg("charge") = 0);
}

}  // namespace tessera
