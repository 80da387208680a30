// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pointers.h"
#include "tessera/engine/engine.hpp"
#include "tessera/engine/run_options.hpp"

namespace LAMMPS_NS {

/// LAMMPS's atoms and box as the engine wants them, and the engine's forces as LAMMPS wants them.
///
/// The only place that knows the unit style: Å are Å in metal and real, energies are eV in metal and kcal/mol in real.
class LammpsSystem : protected Pointers {
 public:
  explicit LammpsSystem(LAMMPS* lmp) : Pointers(lmp) {}

  /// Element of each atom type: index into the model's elements, -1 for NULL. [0] stands for no type.
  void set_elements(std::vector<std::int32_t> element_of_type) { element_of_type_ = std::move(element_of_type); }

  /// The atoms that this rank holds now, unwrapped; the spans live until the next call.
  [[nodiscard]] tessera::AtomsInput read();

  /// A number, or the value of an equal-style variable in this step; all ranks call this.
  [[nodiscard]] long evaluate(const tessera::StepInteger& integer) const;

  /// Adds forces (eV/Å, in the order of the last read()) to LAMMPS's.
  void add_forces(const std::vector<tessera::Vec3>& forces) const;

  /// Refuses what neigh_modify leaves out, whole atoms apart, which read() leaves out; collective.
  void check_exclusions() const;

  /// LAMMPS's energy unit per eV.
  [[nodiscard]] double energy_scale() const;

  /// One line a type whose mass differs from its element's by more than 0.1 u; empty if none. Collective.
  [[nodiscard]] std::string contradicting_masses(const std::vector<std::string>& elements) const;

 private:
  [[nodiscard]] tessera::Box box() const;
  [[nodiscard]] int excluded_groups() const;

  std::vector<std::int32_t> element_of_type_;
  std::vector<tessera::Vec3> positions_;
  std::vector<std::int32_t> elements_;
  std::vector<std::int64_t> ids_;
};

}  // namespace LAMMPS_NS
