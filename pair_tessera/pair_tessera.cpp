// SPDX-License-Identifier: GPL-2.0-only

#include "pair_tessera.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include "atom.h"
#include "comm.h"
#include "domain.h"
#include "force.h"
#include "lammps_errors.h"
#include "memory.h"
#include "neighbor.h"
#include "tessera/comm/mpi.hpp"
#include "tessera/engine/option_names.hpp"
#include "tessera/search/pair_search.hpp"
#include "update.h"
#include "utils.h"

using namespace LAMMPS_NS;

namespace {

constexpr const char* kKeywords =
    "skin, rebuild, recut, curve, balance, peers, search, overlap, exchange, graph, charge, multiplicity, threads";

/// "H, O, K"
template <typename Items>
std::string listed(const Items& items)
{
  std::string text;
  for (const auto& item : items) text += tessera::format(text.empty() ? "{}" : ", {}", item);
  return text;
}

/// The spelling of chemistry: first letter capital, the rest small.
std::string as_symbol(std::string text)
{
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto letter = static_cast<unsigned char>(text[i]);
    text[i] = static_cast<char>(i == 0 ? std::toupper(letter) : std::tolower(letter));
  }
  return text;
}

/// Index of `symbol` among the model's elements.
std::int32_t find_element(const std::string& symbol, int type, const std::vector<std::string>& elements)
{
  const auto found = std::find(elements.begin(), elements.end(), symbol);
  if (found != elements.end()) return static_cast<std::int32_t>(found - elements.begin());
  const bool is_misspelt = std::find(elements.begin(), elements.end(), as_symbol(symbol)) != elements.end();
  tessera::fail(tessera::Reach::collective,
                "pair_coeff: expected one of the model's elements ({}) or NULL for atom type {}, found '{}'; {}",
                listed(elements), type, symbol,
                is_misspelt ? "did you mean '" + as_symbol(symbol) + "'?"
                            : "correct the element or use a model that was exported with it");
}

}  // namespace

PairTessera::PairTessera(LAMMPS* lmp) : Pair(lmp), system_(lmp)
{
  single_enable = 0;
  restartinfo = 0;
  one_coeff = 1;
  manybody_flag = 1;
  no_virial_fdotr_compute = 1;
  reinitflag = 0;
  // Half of an edge's virial goes to either end: its sum is exact, but the heat flux of a many-body model needs more.
  centroidstressflag = CENTROID_NOTAVAIL;
}

PairTessera::~PairTessera()
{
  if (copymode || !allocated) return;
  memory->destroy(setflag);
  memory->destroy(cutsq);
}

void PairTessera::settings(int num_args, char** args)
{
  guard(lmp, [&] {
    (void)system_.energy_scale();  // refuses other units before anything else is read
    engine_.reset();
    options_ = {};
    charge_ = 0;
    multiplicity_ = 1;
    for (int i = 0; i < num_args; i += 2) {
      require(i + 1 < num_args, "pair_style: expected a value after keyword '{}', found the end of the line", args[i]);
      read_keyword(args[i], args[i + 1]);
    }
    if (domain->box_exist) allocate();
  });
}

void PairTessera::read_keyword(const std::string& keyword, const char* value)
{
  const auto natural = [&] {
    const long number = utils::bnumeric(FLERR, value, false, lmp);
    require(number >= 0, "pair_style: expected {} >= 0, found {}", keyword, value);
    return number;
  };
  if (keyword == "skin") {
    options_.skin = utils::numeric(FLERR, value, false, lmp);
    require(std::isfinite(options_.skin) && options_.skin >= 0, "pair_style: expected skin >= 0 (Angstrom), found {}",
            value);
  } else if (keyword == "rebuild") {
    options_.rebuild = natural();
  } else if (keyword == "recut") {
    options_.recut = natural();
  } else if (keyword == "curve") {
    options_.curve = tessera::parse_curve(value);
  } else if (keyword == "balance") {
    options_.balance = tessera::parse_balance(value);
  } else if (keyword == "peers") {
    options_.peers = tessera::parse_peer_scheme(value);
  } else if (keyword == "search") {
    (void)tessera::make_pair_search(value);  // refuses an unknown one now
    options_.search = value;
  } else if (keyword == "overlap") {
    options_.overlap = tessera::parse_yes_no(keyword, value);
  } else if (keyword == "exchange") {
    options_.exchange = tessera::parse_exchange(value);
  } else if (keyword == "graph") {
    options_.graph = tessera::parse_graph_use(value);
  } else if (keyword == "charge") {
    charge_ = utils::bnumeric(FLERR, value, false, lmp);
  } else if (keyword == "multiplicity") {
    multiplicity_ = utils::bnumeric(FLERR, value, false, lmp);
  } else if (keyword == "threads") {
    options_.num_threads = static_cast<int>(natural());
  } else {
    tessera::fail(tessera::Reach::collective, "pair_style: expected one of the keywords {}; found '{}'", kKeywords,
                  keyword);
  }
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
    element_of_type_.assign(count, -1);
  }
  set_pairs();
}

void PairTessera::set_pairs()
{
  const bool is_alone = force->pair == this;
  for (int i = 1; i <= atom->ntypes; ++i)
    for (int j = 1; j <= atom->ntypes; ++j)
      setflag[i][j] = is_alone || (element_of_type_[i] >= 0 && element_of_type_[j] >= 0);
}

void PairTessera::coeff(int num_args, char** args)
{
  guard(lmp, [&] {
    allocate();
    map_types(num_args, args);
    set_pairs();
  });
}

void PairTessera::map_types(int num_args, char** args)
{
  require(
      num_args >= 2 && std::strcmp(args[0], "*") == 0 && std::strcmp(args[1], "*") == 0,
      "pair_coeff: expected `pair_coeff * * model.pt2 <element of each atom type>`, found `{} {}` instead of `* *`; "
      "one model serves all types, and NULL leaves a type out",
      num_args > 0 ? args[0] : "", num_args > 1 ? args[1] : "");
  require(num_args >= 3,
          "pair_coeff: expected a model file after `* *`, found the end of the line; `tessera-export` "
          "writes it");
  const std::string found = utils::get_potential_file_path(args[2]);  // also looks in LAMMPS_POTENTIALS
  const std::string file = found.empty() ? args[2] : found;
  tessera::Passport passport = tessera::read_passport(file);

  const std::vector<std::string> symbols(args + 3, args + num_args);
  require(static_cast<int>(symbols.size()) == atom->ntypes,
          "pair_coeff: expected one element or NULL for each of the {} atom types, found {} ({}); the model has {}",
          atom->ntypes, symbols.size(), symbols.empty() ? "none" : listed(symbols), listed(passport.elements));
  std::vector<std::int32_t> element_of_type(atom->ntypes + 1, -1);
  for (int type = 1; type <= atom->ntypes; ++type)
    if (symbols[type - 1] != "NULL") element_of_type[type] = find_element(symbols[type - 1], type, passport.elements);

  engine_.reset();
  model_file_ = file;
  passport_ = std::move(passport);
  element_of_type_ = std::move(element_of_type);
  system_.set_elements(element_of_type_);
}

void PairTessera::init_style()
{
  guard(lmp, [&] {
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
  const auto check_range = [](const char* name, long value, const std::array<long, 2>& range) {
    require(value >= range[0] && value <= range[1], "expected {} between {} and {} (the model's range), found {}", name,
            range[0], range[1], value);
  };
  check_range("charge", charge_, passport_.charge_range);
  check_range("multiplicity", multiplicity_, passport_.multiplicity_range);
}

void PairTessera::load_engine()
{
  if (comm->me == 0)
    options_.log = [this](const std::string& line) {
      utils::logmesg(lmp, tessera::format("Tessera: step {}: {}\n", update->ntimestep, line));
    };
  engine_ = std::make_unique<tessera::Engine>(model_file_, options_, tessera::make_mpi_communicator(world));
  reported_ = {};
  const std::string masses = system_.contradicting_masses(passport_.elements);
  if (comm->me != 0) return;
  if (!masses.empty())
    error->warning(FLERR, "pair_style tessera: masses contradict the elements of pair_coeff:" + masses);
  if (neighbor->nex_type + neighbor->nex_group + neighbor->nex_mol > 0)
    error->warning(FLERR, "pair_style tessera ignores neigh_modify exclude: all atoms of its elements interact");
  describe_model();
  if (passport_.device == "cuda") describe_device();
}

void PairTessera::describe_device() const
{
  utils::logmesg(lmp, tessera::format("Tessera: rank 0 {}\n", engine_->describe_device()));
}

void PairTessera::describe_model() const
{
  std::vector<std::string> types;
  for (int type = 1; type <= atom->ntypes; ++type) {
    const std::int32_t element = element_of_type_[type];
    types.push_back(tessera::format("{}={}", type, element < 0 ? "NULL" : passport_.elements[element]));
  }
  utils::logmesg(
      lmp, tessera::format("Tessera {}: model {} ({}, {}), atom types {}\n"
                           "Tessera: cutoffs {} A, receptive radius {} A, skin {} A, {}\n",
                           passport_.tessera_version, model_file_, passport_.dtype, passport_.device, listed(types),
                           listed(passport_.cutoffs), passport_.receptive_radius, options_.skin,
                           options_.rebuild > 0 ? tessera::format("rebuild at least every {} steps", options_.rebuild)
                                                : std::string("rebuild when an atom has moved half of it")));
}

double PairTessera::init_one(int /*type_i*/, int /*type_j*/) { return passport_.largest_cutoff(); }

void PairTessera::compute(int eflag, int vflag)
{
  ev_init(eflag, vflag);
  guard(lmp, [&] {
    tessera::AtomsInput input = system_.read();
    input.wants_atom_virials = vflag_atom != 0;
    input.wants_atom_energies = eflag_atom != 0;
    input.charge = charge_;
    input.multiplicity = multiplicity_;
    const tessera::StepResult& result = engine_->compute(input);
    system_.add_forces(result.forces);
    tally(result);
  });
}

void PairTessera::tally(const tessera::StepResult& result)
{
  const double scale = system_.energy_scale();
  const auto add_virial = [scale](double* six, const tessera::Mat3& w) {  // xx, yy, zz, xy, xz, yz
    for (int k = 0; k < 3; ++k) six[k] += scale * w[k][k];
    six[3] += scale * 0.5 * (w[0][1] + w[1][0]);
    six[4] += scale * 0.5 * (w[0][2] + w[2][0]);
    six[5] += scale * 0.5 * (w[1][2] + w[2][1]);
  };
  if (eflag_global) eng_vdwl += scale * result.energy;
  if (vflag_global) add_virial(virial, result.virial);
  if (eflag_atom)
    for (int i = 0; i < atom->nlocal; ++i) eatom[i] += scale * result.atom_energies[i];
  if (vflag_atom)
    for (int i = 0; i < atom->nlocal; ++i) add_virial(vatom[i], result.atom_virials[i]);
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
