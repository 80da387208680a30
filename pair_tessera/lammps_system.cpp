// SPDX-License-Identifier: GPL-2.0-only
#include "lammps_system.h"

#include <cstring>

#include "atom.h"
#include "domain.h"
#include "input.h"
#include "lammps_errors.h"
#include "modify.h"
#include "neighbor.h"
#include "tessera/comm/mpi.hpp"
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
  const int excluded = excluded_groups();
  positions_.resize(num_atoms);
  elements_.resize(num_atoms);
  ids_.resize(num_atoms);
  for (int i = 0; i < num_atoms; ++i) {
    domain->unmap(atom->x[i], atom->image[i], positions_[i].data());
    const std::int32_t element = (atom->mask[i] & excluded) != 0 ? -1 : element_of_type_[atom->type[i]];
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

/// Bits of the groups whose atoms interact with none: `neigh_modify exclude group X all`, as fix gcmc has it.
int LammpsSystem::excluded_groups() const
{
  constexpr int kAll = 1;
  int bits = 0;
  for (int k = 0; k < neighbor->nex_group; ++k) {
    if (neighbor->ex2_bit[k] == kAll) bits |= neighbor->ex1_bit[k];
    if (neighbor->ex1_bit[k] == kAll) bits |= neighbor->ex2_bit[k];
  }
  return bits;
}

void LammpsSystem::check_exclusions() const
{
  int num_parts = neighbor->nex_type + neighbor->nex_mol + neighbor->includegroup;
  for (int k = 0; k < neighbor->nex_group; ++k) num_parts += neighbor->ex1_bit[k] != 1 && neighbor->ex2_bit[k] != 1;
  require(
      num_parts == 0,
      "neigh_modify: expected no exclude or include but `exclude group X all`, found another; a model of many bodies "
      "cannot leave pairs out: use NULL in pair_coeff, or `neigh_modify exclude none` (`include all`)");
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
  tessera::refuse_units(update->unit_style);
}

std::string LammpsSystem::contradicting_masses(const std::vector<std::string>& elements) const
{
  std::vector<double> masses(atom->nlocal);
  for (int i = 0; i < atom->nlocal; ++i) masses[i] = atom->rmass ? atom->rmass[i] : atom->mass[atom->type[i]];
  return tessera::contradicting_masses(element_of_type_, elements, {atom->type, masses.size()}, masses,
                                       *tessera::make_mpi_communicator(world));
}
