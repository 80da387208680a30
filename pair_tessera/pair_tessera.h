// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lammps_system.h"
#include "pair.h"
#include "tessera/engine/engine.hpp"
#include "tessera/engine/run_options.hpp"

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
  void setup() override;
  void compute(int eflag, int vflag) override;
  void finish() override;
  void write_restart(FILE* file) override;
  void read_restart(FILE* file) override;
  void write_restart_settings(FILE* file) override;
  void read_restart_settings(FILE* file) override;
  void* extract(const char* name, int& dimension) override;
  void add_tally_callback(Compute* compute) override;

 private:
  using Words = std::vector<std::string>;

  void read_settings(const Words& words);
  void allocate();
  void read_coefficients(const Words& words);
  void restore_coefficients();
  void check_run() const;
  void load_engine();
  void tally(const tessera::StepResult& result);

  Words settings_, coefficients_;  // of the pair_style and the pair_coeff line; restart files keep them
  std::string weights_;            // hash of the weights of the model that `coefficients_` name
  tessera::RunOptions options_;
  std::string model_file_;  // empty until pair_coeff
  tessera::Passport passport_;
  std::vector<std::int32_t> element_of_type_;
  std::vector<bool> is_mine_;  // [types + 1, types + 1] pairs of types that LAMMPS gives to this style
  LammpsSystem system_;
  std::unique_ptr<tessera::Engine> engine_;  // made at the first run after pair_style or pair_coeff
  tessera::EngineReport reported_;           // what the reports of earlier runs have covered
  std::array<double, 4> values_{};           // extract(): energy, rebuilds, cuts, edges; of this rank
  std::array<double, 4> shares_{};           // compute pair: the same, so that sums over ranks are the system's
};

}  // namespace LAMMPS_NS
