// SPDX-License-Identifier: GPL-2.0-only

#include "lammps_system.h"

#include <cstring>
#include <limits>

#include "atom.h"
#include "domain.h"
#include "input.h"
#include "lammps_errors.h"
#include "modify.h"
#include "tessera/base/error.hpp"
#include "tessera/engine/atom_types.hpp"
#include "update.h"
#include "utils.h"
#include "variable.h"

using namespace LAMMPS_NS;

tessera::AtomsInput LammpsSystem::read()
{
  const int num_atoms = atom->nlocal;
  // Exact test of "other atoms or another order": it holds after LAMMPS has sorted or migrated atoms, after an exchange
  // of types or ids without a new neighbour list, and spares the rebuild when re-neighbouring left everything in place.
  bool is_reordered = static_cast<int>(ids_.size()) != num_atoms;
  positions_.resize(num_atoms);
  elements_.resize(num_atoms);
  ids_.resize(num_atoms);
  for (int i = 0; i < num_atoms; ++i) {
    domain->unmap(atom->x[i], atom->image[i], positions_[i].data());
    const std::int32_t element = element_of_type_[atom->type[i]];
    const std::int64_t id = atom->tag[i];
    is_reordered = is_reordered || id != ids_[i] || element != elements_[i];
    elements_[i] = element;
    ids_[i] = id;
  }
  tessera::AtomsInput input;
  input.positions = positions_;
  input.elements = elements_;
  input.ids = ids_;
  input.box = box();
  input.is_reordered = is_reordered;
  return input;
}

tessera::Box LammpsSystem::box() const
{
  const tessera::Mat3 cell = {
      {{domain->xprd, 0, 0}, {domain->xy, domain->yprd, 0}, {domain->xz, domain->yz, domain->zprd}}};
  return tessera::Box(cell, {domain->boxlo[0], domain->boxlo[1], domain->boxlo[2]},
                      {domain->xperiodic != 0, domain->yperiodic != 0, domain->zperiodic != 0});
}

long LammpsSystem::evaluate(const tessera::StepInteger& integer) const
{
  if (integer.number) return *integer.number;
  const int index = input->variable->find(integer.variable.c_str());
  require(index >= 0 && input->variable->equalstyle(index) != 0,
          "{} v_{}: expected an equal-style variable of that name, found {}", integer.keyword, integer.variable,
          index < 0 ? "none" : "one of another style");
  modify->clearstep_compute();  // a variable may read computes, which must be current in this step and the next
  const double value = input->variable->compute_equal(index);
  modify->addstep_compute(update->ntimestep + 1);
  return integer.from_variable(value);
}

void LammpsSystem::add_forces(const std::vector<tessera::Vec3>& forces) const
{
  const double scale = energy_scale();
  for (std::size_t i = 0; i < forces.size(); ++i)
    for (int k = 0; k < 3; ++k) atom->f[i][k] += scale * forces[i][k];
}

double LammpsSystem::energy_scale() const
{
  if (std::strcmp(update->unit_style, "metal") == 0) return 1.0;
  if (std::strcmp(update->unit_style, "real") == 0)
    return utils::get_conversion_factor(utils::ENERGY, utils::METAL2REAL);
  tessera::fail(
      tessera::Reach::collective,
      "expected units metal (eV, ps) or real (kcal/mol, fs), found units {}; put `units metal` or `units real` "
      "at the top of the input",
      update->unit_style);
}

std::string LammpsSystem::contradicting_masses(const std::vector<std::string>& elements) const
{
  // Lightest and heaviest atom of each type over all ranks; with masses per type the two are equal.
  std::vector<double> lightest(atom->ntypes + 1, std::numeric_limits<double>::infinity());
  std::vector<double> heaviest(atom->ntypes + 1, -std::numeric_limits<double>::infinity());
  for (int i = 0; i < atom->nlocal; ++i) {
    const int type = atom->type[i];
    const double mass = atom->rmass ? atom->rmass[i] : atom->mass[type];
    lightest[type] = std::min(lightest[type], mass);
    heaviest[type] = std::max(heaviest[type], mass);
  }
  const int count = atom->ntypes + 1;
  MPI_Allreduce(MPI_IN_PLACE, lightest.data(), count, MPI_DOUBLE, MPI_MIN, world);
  MPI_Allreduce(MPI_IN_PLACE, heaviest.data(), count, MPI_DOUBLE, MPI_MAX, world);
  return tessera::contradicting_masses(element_of_type_, elements, lightest, heaviest);
}
