// SPDX-License-Identifier: GPL-2.0-only

#include "pair_tessera.h"

#include <cstring>
#include <utility>

#include "atom.h"
#include "comm.h"
#include "domain.h"
#include "force.h"
#include "lammps_errors.h"
#include "memory.h"
#include "neighbor.h"
#include "tessera/comm/mpi.hpp"
#include "tessera/engine/atom_types.hpp"
#include "tessera/engine/restart_words.hpp"
#include "update.h"
#include "utils.h"

using namespace LAMMPS_NS;

namespace {

/// Indices of a tensor's components as LAMMPS orders them: six of a symmetric one, nine of any.
constexpr std::array<std::array<int, 2>, 9> kComponents{
    {{0, 0}, {1, 1}, {2, 2}, {0, 1}, {0, 2}, {1, 2}, {1, 0}, {2, 0}, {2, 1}}};

constexpr std::array<const char*, 4> kValues{"energy", "rebuilds", "cuts", "edges"};

}  // namespace

PairTessera::PairTessera(LAMMPS* lmp) : Pair(lmp), system_(lmp)
{
  single_enable = 0;
  restartinfo = 1;
  one_coeff = 1;
  manybody_flag = 1;
  no_virial_fdotr_compute = 1;
  reinitflag = 0;
  centroidstressflag = CENTROID_AVAIL;
  nextra = static_cast<int>(shares_.size());
  pvector = shares_.data();
}

PairTessera::~PairTessera()
{
  if (copymode || !allocated) return;
  memory->destroy(setflag);
  memory->destroy(cutsq);
}

void PairTessera::settings(int num_args, char** args)
{
  guard(lmp, [&] { read_settings(Words(args, args + num_args)); });
}

void PairTessera::read_settings(const Words& words)
{
  (void)system_.energy_scale();  // refuses other units before anything else is read
  engine_.reset();
  options_ = tessera::read_run_options(words);
  settings_ = words;
  if (domain->box_exist) allocate();
}

/// LAMMPS refuses to start a run while a pair is not set, before it asks the style. So a style of its own (no part of
/// a hybrid) calls all pairs set from the start and tells itself, in init_style(), what is missing.
void PairTessera::allocate()
{
  const int count = atom->ntypes + 1;
  if (!allocated) {
    memory->create(setflag, count, count, "pair:setflag");
    memory->create(cutsq, count, count, "pair:cutsq");
    allocated = 1;
  }
  const auto is_mapped = [&](int type) { return !element_of_type_.empty() && element_of_type_[type] >= 0; };
  for (int i = 1; i < count; ++i)
    for (int j = 1; j < count; ++j) setflag[i][j] = force->pair == this || (is_mapped(i) && is_mapped(j));
}

void PairTessera::coeff(int num_args, char** args)
{
  guard(lmp, [&] {
    read_coefficients(Words(args, args + num_args));
    allocate();
  });
}

void PairTessera::read_coefficients(const Words& words)
{
  require(
      words.size() >= 2 && words[0] == "*" && words[1] == "*",
      "pair_coeff: expected `pair_coeff * * model.pt2 <element of each atom type>`, found `{} {}` instead of `* *`; "
      "one model serves all types, and NULL leaves a type out",
      words.empty() ? "" : words[0], words.size() < 2 ? "" : words[1]);
  require(words.size() >= 3,
          "pair_coeff: expected a model file after `* *`, found the end of the line; `tessera-export` writes it");
  const std::string found = utils::get_potential_file_path(words[2]);  // also looks in LAMMPS_POTENTIALS
  const std::string file = found.empty() ? words[2] : found;
  tessera::Passport passport = tessera::read_passport(file);
  element_of_type_ = tessera::map_types(Words(words.begin() + 3, words.end()), atom->ntypes, passport);
  system_.set_elements(element_of_type_);
  engine_.reset();
  model_file_ = file;
  passport_ = std::move(passport);
  weights_ = passport_.weights_sha256;
  coefficients_ = words;
}

/// What a restart file said of the model, unless a later pair_coeff has replaced it.
void PairTessera::restore_coefficients()
{
  const std::string expected = weights_;
  read_coefficients(Words(coefficients_));
  if (weights_ == expected) return;
  const std::string changed = std::exchange(model_file_, {});
  weights_ = expected;
  require(false,
          "{}: expected the model that the restart file was written with (weights {}), found another one (weights {}); "
          "put the former back, or name the model with pair_coeff after read_restart",
          changed, expected, passport_.weights_sha256);
}

void PairTessera::init_style()
{
  guard(lmp, [&] {
    if (model_file_.empty() && !coefficients_.empty()) restore_coefficients();
    check_run();
    if (!engine_) load_engine();
  });
}

void PairTessera::check_run() const
{
  require(!model_file_.empty(),
          "expected `pair_coeff * * model.pt2 <element of each atom type>` before the run, found "
          "no pair_coeff");
  (void)system_.energy_scale();
  require(domain->dimension == 3, "expected dimension 3, found {}; the model is three-dimensional", domain->dimension);
  require(atom->tag_enable != 0, "expected atoms with ids, found none; remove `atom_modify id no`");
  options_.charge.check(passport_.charge_range);
  options_.multiplicity.check(passport_.multiplicity_range);
}

void PairTessera::load_engine()
{
  if (comm->me == 0)
    options_.engine.log = [this](const std::string& line) {
      utils::logmesg(lmp, tessera::format("Tessera: step {}: {}\n", update->ntimestep, line));
    };
  engine_ = std::make_unique<tessera::Engine>(model_file_, options_.engine, tessera::make_mpi_communicator(world));
  reported_ = {};
  const std::string masses = system_.contradicting_masses(passport_.elements);
  if (comm->me != 0) return;
  if (!masses.empty())
    error->warning(FLERR, "pair_style tessera: masses contradict the elements of pair_coeff:" + masses);
  if (neighbor->nex_type + neighbor->nex_group + neighbor->nex_mol > 0)
    error->warning(FLERR, "pair_style tessera ignores neigh_modify exclude: all atoms of its elements interact");
  utils::logmesg(lmp, tessera::describe_model(model_file_, passport_, element_of_type_, options_.engine));
  if (passport_.device == "cuda")
    utils::logmesg(lmp, tessera::format("Tessera: rank 0 {}\n", engine_->describe_device()));
}

double PairTessera::init_one(int /*type_i*/, int /*type_j*/) { return passport_.largest_cutoff(); }

void PairTessera::compute(int eflag, int vflag)
{
  ev_init(eflag, vflag);
  guard(lmp, [&] {
    tessera::AtomsInput input = system_.read();
    input.wants_atom_virials = vflag_atom != 0 || cvflag_atom != 0;
    input.wants_atom_energies = eflag_atom != 0;
    input.charge = system_.evaluate(options_.charge);
    input.multiplicity = system_.evaluate(options_.multiplicity);
    const tessera::StepResult& result = engine_->compute(input);
    system_.add_forces(result.forces);
    tally(result);
  });
}

void PairTessera::tally(const tessera::StepResult& result)
{
  const double scale = system_.energy_scale();
  const auto add_virial = [scale](double* six, const tessera::Mat3& w) {
    for (int k = 0; k < 6; ++k) {
      const auto [a, b] = kComponents[k];
      six[k] += scale * 0.5 * (w[a][b] + w[b][a]);
    }
  };
  if (eflag_global) eng_vdwl += scale * result.energy;
  if (vflag_global) add_virial(virial, result.virial);
  for (int i = 0; i < atom->nlocal; ++i) {
    if (eflag_atom) eatom[i] += scale * result.atom_energies[i];
    if (vflag_atom) add_virial(vatom[i], result.atom_virials[i]);
    if (!cvflag_atom) continue;
    for (int k = 0; k < 9; ++k) cvatom[i][k] += scale * result.atom_virials[i][kComponents[k][0]][kComponents[k][1]];
  }
  const tessera::EngineReport& report = engine_->report();
  values_ = {scale * (result.energy - result.reference_energy), static_cast<double>(report.num_rebuilds()),
             static_cast<double>(report.cuts), static_cast<double>(report.num_edges)};
  shares_ = values_;
  if (comm->me != 0) shares_[1] = shares_[2] = 0;  // equal on all ranks
}

void* PairTessera::extract(const char* name, int& dimension)
{
  dimension = 0;
  for (std::size_t k = 0; k < kValues.size(); ++k)
    if (std::strcmp(name, kValues[k]) == 0) return &values_[k];
  return nullptr;
}

void PairTessera::write_restart_settings(FILE* file)
{
  guard(lmp, [&] { tessera::write_words(file, settings_); });
}

void PairTessera::write_restart(FILE* file)
{
  write_restart_settings(file);
  guard(lmp, [&] {
    tessera::write_words(file, coefficients_);
    tessera::write_words(file, {weights_});
  });
}

void PairTessera::read_restart_settings(FILE* file)
{
  guard(lmp, [&] { read_settings(tessera::read_words(file, *tessera::make_mpi_communicator(world))); });
}

/// The model is looked for at the next run: until then pair_coeff can name another.
void PairTessera::read_restart(FILE* file)
{
  read_restart_settings(file);
  guard(lmp, [&] {
    const auto communicator = tessera::make_mpi_communicator(world);
    coefficients_ = tessera::read_words(file, *communicator);
    weights_ = tessera::read_words(file, *communicator).at(0);
    model_file_.clear();
  });
}

/// LAMMPS calls this at the end of each run, on all ranks.
void PairTessera::finish()
{
  if (!engine_) return;
  guard(lmp, [&] {
    const std::string load = tessera::describe_load(reported_, engine_->report(), engine_->communicator());
    reported_ = engine_->report();
    if (comm->me == 0 && !load.empty()) utils::logmesg(lmp, "\n" + load);
  });
}
