// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lammps_system.h"
#include "pair.h"
#include "tessera/engine/engine.hpp"

namespace LAMMPS_NS {

/// `pair_style tessera`: a thin adapter between LAMMPS and tessera::Engine, which does all the physics.
///
///     pair_style tessera keyword value ...            README.md of this folder: syntax, units, restrictions
///     pair_coeff * * model.pt2 H O ...
///
/// It asks LAMMPS for no neighbour list: the engine has its own.
class PairTessera : public Pair {
 public:
  explicit PairTessera(LAMMPS* lmp);
  ~PairTessera() override;

  void settings(int num_args, char** args) override;
  void coeff(int num_args, char** args) override;
  void init_style() override;
  double init_one(int type_i, int type_j) override;
  void compute(int eflag, int vflag) override;
  void finish() override;

 private:
  void read_keyword(const std::string& keyword, const char* value);
  void allocate();
  void map_types(int num_args, char** args);
  void set_pairs();
  void check_run() const;
  void load_engine();
  void describe_model() const;
  void describe_device() const;
  void tally(const tessera::StepResult& result);

  tessera::EngineOptions options_;
  long charge_ = 0;
  long multiplicity_ = 1;
  std::string model_file_;  // empty until pair_coeff
  tessera::Passport passport_;
  std::vector<std::int32_t> element_of_type_;
  LammpsSystem system_;
  std::unique_ptr<tessera::Engine> engine_;  // made at the first run after pair_style or pair_coeff
  tessera::EngineReport reported_;           // what the reports of earlier runs have covered
};

}  // namespace LAMMPS_NS
