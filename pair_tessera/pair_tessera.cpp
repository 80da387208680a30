// SPDX-License-Identifier: GPL-2.0-only
#include "pair_tessera.h"

#include <algorithm>
#include <utility>

#include "atom.h"
#include "comm.h"
#include "compute.h"
#include "domain.h"
#include "force.h"
#include "lammps_errors.h"
#include "memory.h"
#include "modify.h"
#include "tessera/base/tensor_order.hpp"
#include "tessera/comm/local_rank.hpp"
#include "tessera/comm/mpi.hpp"
#include "tessera/engine/atom_types.hpp"
#include "tessera/engine/restart_words.hpp"
#include "tessera/engine/shared_passport.hpp"
#include "update.h"
#include "utils.h"

using namespace LAMMPS_NS;

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
  const auto [name, symbols] = tessera::parse_pair_coefficients(words);
  const std::string found = utils::get_potential_file_path(name);  // also looks in LAMMPS_POTENTIALS
  const std::string file = found.empty() ? name : found;
  tessera::Passport passport = tessera::read_shared_passport(file, *tessera::make_mpi_communicator(world));
  element_of_type_ = tessera::map_types(symbols, atom->ntypes, passport);
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
  tessera::refuse_other_weights(changed, expected, std::exchange(weights_, expected));
}

void PairTessera::init_style()
{
  guard(lmp, [&] {
    if (model_file_.empty() && !coefficients_.empty()) restore_coefficients();
    check_run();
    is_mine_.assign((atom->ntypes + 1) * (atom->ntypes + 1), false);
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
  require(
      modify->get_fix_by_style("^numdiff/virial").empty() && modify->get_compute_by_style("^born/matrix").empty(),
      "expected no fix numdiff/virial and no compute born/matrix, found one; they strain copies of atoms and not the "
      "box, which this style does not see: use change_box and the pressure");
  options_.charge.check(passport_.charge_range);
  options_.multiplicity.check(passport_.multiplicity_range);
}

void PairTessera::load_engine()
{
  if (comm->me == 0)
    options_.engine.log = [this](const std::string& line) {
      utils::logmesg(lmp, tessera::format("Tessera: step {}: {}\n", update->ntimestep, line));
    };
  options_.engine.local_rank = tessera::launcher_local_rank().value_or(-1);  // -partition: GPUs for each replica
  engine_ = std::make_unique<tessera::Engine>(model_file_, options_.engine, tessera::make_mpi_communicator(world));
  reported_ = {};
  const std::string masses = system_.contradicting_masses(passport_.elements);
  if (comm->me != 0) return;
  if (!masses.empty())
    error->warning(FLERR, "pair_style tessera: masses contradict the elements of pair_coeff:" + masses);
  utils::logmesg(lmp, tessera::describe_model(model_file_, passport_, element_of_type_, options_.engine));
  if (passport_.device == "cuda")
    utils::logmesg(lmp, tessera::format("Tessera: rank 0 {}\n", engine_->describe_device()));
}

double PairTessera::init_one(int type_i, int type_j)
{
  is_mine_[type_i * (atom->ntypes + 1) + type_j] = true;  // type_i <= type_j; in a hybrid only those of this style
  return passport_.largest_cutoff();
}

/// What commands of other styles, fixes and neigh_modify ask for, known once all are initialized.
void PairTessera::setup()
{
  guard(lmp, [&] {
    tessera::require_all_pairs(element_of_type_, is_mine_);
    system_.check_exclusions();
  });
}

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
  if (eflag_global) eng_vdwl += scale * result.energy;
  if (vflag_global) tessera::add_symmetric(virial, scale, result.virial);
  for (int i = 0; i < atom->nlocal; ++i) {
    if (eflag_atom) eatom[i] += scale * result.atom_energies[i];
    if (vflag_atom) tessera::add_symmetric(vatom[i], scale, result.atom_virials[i]);
    if (cvflag_atom) tessera::add_all(cvatom[i], scale, result.atom_virials[i]);
  }
  values_ = shares_ = tessera::values_of(result, engine_->report(), scale);
  if (comm->me != 0) shares_[1] = shares_[2] = 0;  // equal on all ranks
}

void* PairTessera::extract(const char* name, int& dimension)
{
  dimension = 0;
  const auto& names = tessera::kValueNames;
  const auto found = std::find(names.begin(), names.end(), std::string_view(name));
  return found == names.end() ? nullptr : &values_[found - names.begin()];
}

/// compute force/tally and its like, which LAMMPS itself would give zeros.
void PairTessera::add_tally_callback(Compute* compute)
{
  guard(lmp, [&] {
    tessera::fail(tessera::Reach::collective,
                  "expected no compute of style */tally, found {}; a model of many bodies has no forces of pairs: use "
                  "compute pe/atom or stress/atom, or in a hybrid `pair_modify pair tessera compute/tally no`",
                  compute->style);
  });
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

void PairTessera::finish()
{
  if (!engine_) return;
  guard(lmp, [&] {
    const std::string load = tessera::describe_load(reported_, engine_->report(), engine_->communicator());
    reported_ = engine_->report();
    if (comm->me == 0 && !load.empty()) utils::logmesg(lmp, "\n" + load);
  });
}
