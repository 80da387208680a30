// SPDX-License-Identifier: MIT
#include "tessera/engine/engine.hpp"

#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/base/memory_reserve.hpp"
#include "tessera/comm/local_rank.hpp"
#include "tessera/engine/device_exchanges.hpp"
#include "tessera/engine/halo_values.hpp"
#include "tessera/engine/shard.hpp"
#include "tessera/engine/step.hpp"
#include "tessera/model/artifact.hpp"
#include "tessera/model/exchange_set.hpp"
#include "tessera/search/pair_search.hpp"
#include "tessera/topology/build_device_topology.hpp"

namespace tessera {

namespace {

constexpr int kPositionTag = 7100;
constexpr int kFeatureTag = 7200;  // + list

class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

void require_finite(std::span<const Vec3> vectors, std::span<const std::int64_t> ids, const char* what)
{
  for (std::size_t k = 0; k < vectors.size(); ++k) {
    const Vec3& v = vectors[k];
    TESSERA_REQUIRE(std::isfinite(v[0]) && std::isfinite(v[1]) && std::isfinite(v[2]),
                    "the {} of atom {} is ({}, {}, {}): expected finite numbers. A time step that is too long or "
                    "overlapping atoms are the usual causes",
                    what, ids[k], v[0], v[1], v[2]);
  }
}

/// Out of range the model would clip the number without a word.
void require_in_range(const char* name, long value, const std::array<long, 2>& range)
{
  if (value >= range[0] && value <= range[1]) return;
  fail(Reach::collective, "{}: expected {} to {} (what the model was made for), found {}", name, range[0], range[1],
       value);
}

}  // namespace

/// What one epoch holds beside its lists: the exchanges that carry out their plans.
struct Epoch {
  std::unique_ptr<HaloExchange> positions;  // of the widest list
  std::unique_ptr<ExchangeSet> features;    // one a list, found by the model's operators
  std::size_t num_lists = 0;

  /// Of rows that pass through the host.
  [[nodiscard]] HaloExchange::Traffic feature_traffic() const
  {
    HaloExchange::Traffic sum;
    for (std::size_t l = 0; l < num_lists; ++l) {
      const auto& traffic = features->exchange(static_cast<std::int64_t>(l)).traffic();
      sum.messages += traffic.messages;
      sum.bytes += traffic.bytes;
      sum.wait_seconds += traffic.wait_seconds;
    }
    return sum;
  }
};

struct Engine::Impl {
  Impl(const std::string& path, const EngineOptions& engine_options, std::shared_ptr<Communicator> comm)
      : artifact(path, engine_options.num_threads,
                 engine_options.local_rank >= 0 ? engine_options.local_rank : local_rank(*comm)),
        options(engine_options),
        communicator(std::move(comm)),
        search(make_pair_search(options.search)),
        cache(artifact.passport().largest_cutoff(), options.skin, options.rebuild),
        shard(options, communicator),
        lists(artifact.place(), artifact.passport().cutoffs.size()),
        exchanges(options, lists.lists.size(), artifact.place(), communicator),
        step(
            artifact, can_capture() ? options.graph : GraphUse::off,
            [this](std::span<std::int64_t> values) { take_largest(values); }, options.log),
        builder(step.stream(), options.edge_order)
  {
  }

  MemoryReserve reserve;  // first: also loading the artifact may find no memory
  Artifact artifact;
  EngineOptions options;
  std::shared_ptr<Communicator> communicator;
  PairSearch search;
  TopologyCache cache;
  Shard shard;
  DeviceTopology lists;  // of the epoch
  DeviceExchanges exchanges;
  Step step;
  DeviceTopologyBuilder builder;  // where the model runs on a GPU
  std::optional<Epoch> epoch;
  StepResult result;
  EngineReport report;
  HaloExchange::Traffic device_features, device_positions;  // of all exchanges that were queued so far
  HaloExchange::Traffic run_traffic;                        // features, of one run of the step on the device
  std::int64_t run_position_messages = 0;

  [[nodiscard]] RebuildCause decide(const AtomsInput& atoms);
  void rebuild(const AtomsInput& atoms, RebuildCause cause);
  void cut(const AtomsInput& atoms);
  void build_epoch(const Box& box);
  [[nodiscard]] bool searches_on_device() const { return artifact.place().is_gpu() && options.search == "cells"; }
  /// Messages of the host cannot be recorded.
  [[nodiscard]] bool can_capture() const { return communicator->num_ranks() == 1 || exchanges.is_active(); }
  [[nodiscard]] bool exchanges_on_host() const { return !can_capture(); }
  void take_largest(std::span<std::int64_t> values);
  void begin_epoch();
  void collect(const AtomsInput& atoms, StepOutput output);
  void count_traffic(const HaloExchange::Traffic& before, const Step::Report& earlier);
};

/// Brings the caller's atoms into the rows and asks all ranks whether the epoch holds.
///
/// What is wrong with this rank's input is kept until the vote, which tells the others.
RebuildCause Engine::Impl::decide(const AtomsInput& atoms)
{
  const Stopwatch watch(report.reshard_seconds);
  std::optional<Error> failure;
  try {
    require_finite(atoms.positions, atoms.ids, "position");
  } catch (const Error& error) {
    failure = error;
  }
  const bool same_atoms = shard.find_rows(atoms, atoms.is_reordered);
  RebuildCause cause = epoch ? RebuildCause::none : RebuildCause::first;
  if (epoch && !same_atoms) cause = RebuildCause::migration;
  if (same_atoms && epoch) {
    shard.take_positions(atoms);
    if (shard.has_expired() && communicator->num_ranks() > 1) cause = RebuildCause::recut;
  }
  try {
    return cache.vote(shard.positions(), atoms.box, cause, !failure, *communicator);
  } catch (const Error&) {
    if (failure) throw *failure;
    throw;
  }
}

void Engine::Impl::cut(const AtomsInput& atoms)
{
  std::vector<std::int64_t> weights;
  if (options.balance == Balance::edges && epoch && shard.is_cut()) {
    const auto first = lists.widest().first_of_receiver.to_host(step.stream());
    std::vector<std::int64_t> edges(lists.num_owned);
    for (std::size_t i = 0; i < edges.size(); ++i) edges[i] = 1 + first[i + 1] - first[i];
    weights = shard.to_visible<std::int64_t>(edges);
  }
  epoch.reset();
  shard.cut(atoms, weights);
  ++report.cuts;
}

void Engine::Impl::rebuild(const AtomsInput& atoms, RebuildCause cause)
{
  const bool has_new_atoms = cause == RebuildCause::first || cause == RebuildCause::migration;
  if (has_new_atoms) {
    epoch.reset();  // its lists are of other atoms
    const Stopwatch watch(report.reshard_seconds);
    cut(atoms);
  } else if (shard.should_cut(atoms.box)) {
    const Stopwatch watch(report.reshard_seconds);
    cut(atoms);
  }
  build_epoch(atoms.box);
  if (has_new_atoms && options.balance == Balance::edges && communicator->num_ranks() > 1) {
    cut(atoms);  // now that the edges of these atoms are known
    build_epoch(atoms.box);
  }
  cache.remember(shard.positions(), atoms.box);
  ++report.rebuilds[static_cast<std::size_t>(cause)];
}

void Engine::Impl::build_epoch(const Box& box)
{
  const Stopwatch watch(report.search_seconds);
  epoch.reset();  // its lists change now, and a refusal on the way must not leave it in force
  const auto& cutoffs = artifact.passport().cutoffs;
  const CandidateQuery query{options.peers, 8, cutoffs.back() + options.skin, &shard.curve(), &shard.splitters(),
                             shard.drift()};
  const Candidates candidates = find_candidates(query, shard.positions(), box, *communicator);
  if (searches_on_device()) {
    builder.build(shard.positions(), candidates, box, cutoffs, options.skin, cache.epoch() + 1, *communicator, lists);
  } else {
    lists.upload(build_topology(shard.positions(), candidates, box, cutoffs, options.skin, cache.epoch() + 1, search,
                                *communicator),
                 step.stream());
  }
  begin_epoch();
}

/// Sets up the exchanges of the lists' plans and hands the lists to the step.
void Engine::Impl::begin_epoch()
{
  Epoch next;
  EpochInput input;
  next.num_lists = lists.lists.size();
  next.positions = std::make_unique<HaloExchange>(lists.widest().plan, communicator, kPositionTag);
  std::vector<std::unique_ptr<HaloExchange>> features;
  std::vector<std::shared_ptr<const HaloPlan>> plans;
  const std::vector<double> owned(shard.elements().begin(), shard.elements().end());
  for (std::size_t l = 0; l < next.num_lists; ++l) {
    const auto& plan = lists.lists[l].plan;
    features.push_back(
        std::make_unique<HaloExchange>(plan, communicator, kFeatureTag + static_cast<int>(l), options.overlap));
    const auto extended = extend<double>(owned, *features.back());
    input.halo_elements.emplace_back(extended.begin() + lists.num_owned, extended.end());
    input.slots.push_back(HaloSlots::identity(plan->num_halo));
    plans.push_back(plan);
  }
  if (exchanges.is_active()) {
    exchanges.begin_epoch(plans, step.stream());
    input.slots = exchanges.slots();
    input.exchange = exchanges.positions();
    input.arrangement = [this] { return exchanges.arrangement(); };
  }
  next.features = std::make_unique<ExchangeSet>(std::move(features), exchanges.features());
  input.topology = &lists;
  input.elements = shard.elements();
  input.plan_handle = communicator->num_ranks() > 1 ? next.features->handle() : 0;
  step.begin_epoch(input);
  epoch = std::move(next);
}

void Engine::Impl::take_largest(std::span<std::int64_t> values)
{
  if (communicator->num_ranks() > 1) communicator->all_reduce(values, Reduction::max);
}

/// Adds what the step has sent: what passed through the host since `before`, or what the device's exchanges send each
/// time that they run, which replays do without the host.
void Engine::Impl::count_traffic(const HaloExchange::Traffic& before, const Step::Report& earlier)
{
  const HaloExchange::Traffic after = epoch->feature_traffic();
  report.messages += after.messages - before.messages;
  report.bytes += after.bytes - before.bytes;
  report.wait_seconds += after.wait_seconds - before.wait_seconds;
  report.model_seconds -= after.wait_seconds - before.wait_seconds;
  if (!exchanges.is_active()) return;
  const HaloExchange::Traffic features = exchanges.feature_traffic(), positions = exchanges.positions()->traffic();
  const std::int64_t recorded = step.report().recorded_runs - earlier.recorded_runs;
  if (recorded > 0) {
    run_traffic = {(features.messages - device_features.messages) / recorded,
                   (features.bytes - device_features.bytes) / recorded, 0};
    run_position_messages = (positions.messages - device_positions.messages) / recorded;
  }
  device_features = features;
  device_positions = positions;
  const std::int64_t runs = step.report().runs - earlier.runs;
  report.messages += runs * run_traffic.messages;
  report.bytes += runs * run_traffic.bytes;
  report.position_messages += runs * run_position_messages;
}

void Engine::Impl::collect(const AtomsInput& atoms, StepOutput output)
{
  std::vector<Vec3> extended;
  std::span<const Vec3> forces = output.forces;
  if (exchanges_on_host()) {
    extended.assign(output.forces.begin(), output.forces.end());
    extended.insert(extended.end(), output.halo_forces.begin(), output.halo_forces.end());
    bring_home(extended, *epoch->positions);
    forces = extended;
  }
  require_finite(forces, shard.ids(), "force");
  result.energy = output.energy;
  result.reference_energy = 0;
  for (const auto element : shard.elements()) {
    result.reference_energy += artifact.passport().reference_energies[element];
  }
  result.virial = output.virial;
  shard.to_caller<Vec3>(forces, result.forces);
  result.atom_energies.clear();
  if (atoms.wants_atom_energies) shard.to_caller<double>(step.atom_energies(), result.atom_energies);
  result.atom_virials.clear();
  if (atoms.wants_atom_virials) {
    bring_home(output.atom_virials, *epoch->positions);
    shard.to_caller<Mat3>(output.atom_virials, result.atom_virials);
  }
}

Engine::Engine(const std::string& path, const EngineOptions& options, std::shared_ptr<Communicator> communicator)
    : impl_(std::make_unique<Impl>(path, options, std::move(communicator)))
{
  const Device place = impl_->artifact.place();
  if (place.is_gpu()) impl_->report.device_bytes = static_cast<std::int64_t>(memory_of(place).total);
}

Engine::~Engine() = default;

const Passport& Engine::passport() const noexcept { return impl_->artifact.passport(); }
std::string Engine::device() const { return impl_->artifact.device(); }
const EngineReport& Engine::report() const noexcept { return impl_->report; }
std::string Engine::describe_device() const
{
  const Impl& self = *impl_;
  std::string text =
      format("computes on {}, searches pairs {}", device(), self.searches_on_device() ? "there" : "on the host");
  if (!self.exchanges.description().empty()) text += ", " + self.exchanges.description();
  if (self.artifact.place().is_gpu()) {
    const bool replays = self.can_capture() && self.options.graph != GraphUse::off;
    text += replays ? ", replays its step as a graph" : ", launches its step kernel by kernel";
  }
  return text;
}
Communicator& Engine::communicator() noexcept { return *impl_->communicator; }

double Engine::time_model(int repeats)
{
  TESSERA_REQUIRE(impl_->communicator->num_ranks() == 1 && impl_->epoch && repeats > 0,
                  "time_model: expected one rank, a step before it and a positive number of repeats");
  return impl_->step.time_model(repeats);
}

const StepResult& Engine::compute(const AtomsInput& atoms)
{
  Impl& self = *impl_;
  const Stopwatch watch(self.report.total_seconds);
  self.reserve.refill();
  require_in_range("charge", atoms.charge, self.artifact.passport().charge_range);
  require_in_range("multiplicity", atoms.multiplicity, self.artifact.passport().multiplicity_range);

  const RebuildCause cause = self.decide(atoms);
  if (cause != RebuildCause::none) self.rebuild(atoms, cause);
  self.cache.tick();
  self.shard.tick();

  EngineReport& report = self.report;
  const auto messages = self.epoch->positions->traffic().messages;
  std::vector<Vec3> extended;
  std::span<const Vec3> halo;
  if (self.exchanges_on_host()) {
    extended = extend<Vec3>(self.shard.positions(), *self.epoch->positions);
    halo = std::span(extended).subspan(self.shard.positions().size());
  }
  const HaloExchange::Traffic traffic = self.epoch->feature_traffic();
  const Step::Report earlier = self.step.report();
  StepOutput output;
  {
    const Stopwatch model_watch(report.model_seconds);
    output = self.step.run(self.shard.positions(), halo, atoms.box, atoms.charge, atoms.multiplicity,
                           atoms.wants_atom_virials);
  }
  self.count_traffic(traffic, earlier);
  report.num_edges = output.num_edges;
  self.collect(atoms, std::move(output));

  ++report.steps;
  report.position_messages += self.epoch->positions->traffic().messages - messages;
  report.num_owned = self.lists.num_owned;
  report.num_halo = self.lists.widest().plan->num_halo;
  report.num_peers = static_cast<std::int64_t>(self.lists.widest().plan->peers.size());
  const Step::Report& step = self.step.report();
  report.captures = step.captures;
  report.repeated_steps = step.overflows;
  report.foreseen_bytes = step.foreseen_bytes;
  report.peak_bytes = static_cast<std::int64_t>(step.peak_bytes);
  return self.result;
}

}  // namespace tessera
