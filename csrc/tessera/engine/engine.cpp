// SPDX-License-Identifier: MIT
#include "tessera/engine/engine.hpp"

#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/comm/local_rank.hpp"
#include "tessera/engine/assembly.hpp"
#include "tessera/engine/geometry.hpp"
#include "tessera/engine/halo_values.hpp"
#include "tessera/engine/shard.hpp"
#include "tessera/model/artifact.hpp"
#include "tessera/model/exchange_set.hpp"
#include "tessera/search/pair_search.hpp"

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

/// What one epoch holds: pairs, plans, and the exchanges that carry them out.
struct Epoch {
  Topology topology;
  std::unique_ptr<HaloExchange> positions;  // of the widest list
  std::unique_ptr<ExchangeSet> features;    // one a list, found by the model's operators
  std::vector<std::vector<std::int32_t>> halo_elements;

  [[nodiscard]] HaloExchange::Traffic feature_traffic() const
  {
    HaloExchange::Traffic sum;
    for (std::size_t l = 0; l < topology.lists.size(); ++l) {
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
      : artifact(path, engine_options.num_threads, local_rank(*comm)),
        options(engine_options),
        communicator(std::move(comm)),
        search(make_pair_search(options.search)),
        cache(artifact.passport().largest_cutoff(), options.skin, options.rebuild),
        shard(options, communicator)
  {
  }

  Artifact artifact;
  EngineOptions options;
  std::shared_ptr<Communicator> communicator;
  PairSearch search;
  TopologyCache cache;
  Shard shard;
  std::optional<Epoch> epoch;
  StepResult result;
  EngineReport report;

  [[nodiscard]] RebuildCause decide(const AtomsInput& atoms);
  void rebuild(const AtomsInput& atoms, RebuildCause cause);
  void cut(const AtomsInput& atoms);
  void build_epoch(const Box& box);
  [[nodiscard]] std::vector<ActiveEdges> find_edges(std::span<const Vec3> positions, const Box& box);
  [[nodiscard]] ModelOutput run_model(const AtomsInput& atoms, std::span<const ActiveEdges> active);
  void collect(const AtomsInput& atoms, std::span<const ActiveEdges> active, const ModelOutput& output);
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
    std::vector<std::int64_t> edges(epoch->topology.num_owned, 1);
    for (const std::int64_t i : epoch->topology.widest().pairs.receiver) ++edges[i];
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
    epoch.reset();
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
  const auto& cutoffs = artifact.passport().cutoffs;
  const CandidateQuery query{options.peers, 8, cutoffs.back() + options.skin, &shard.curve(), &shard.splitters(),
                             shard.drift()};
  const Candidates candidates = find_candidates(query, shard.positions(), box, *communicator);
  Epoch next;
  next.topology = build_topology(shard.positions(), candidates, box, cutoffs, options.skin, cache.epoch() + 1, search,
                                 *communicator);
  const Topology& topology = next.topology;
  next.positions = std::make_unique<HaloExchange>(topology.widest().plan, communicator, kPositionTag);
  std::vector<std::unique_ptr<HaloExchange>> features;
  for (std::size_t l = 0; l < topology.lists.size(); ++l) {
    const auto& plan = topology.lists[l].plan;
    features.push_back(
        std::make_unique<HaloExchange>(plan, communicator, kFeatureTag + static_cast<int>(l), options.overlap));
    const std::vector<double> owned(shard.elements().begin(), shard.elements().end());
    const auto extended = extend<double>(owned, *features.back());
    next.halo_elements.emplace_back(extended.begin() + topology.num_owned, extended.end());
  }
  next.features = std::make_unique<ExchangeSet>(std::move(features));
  epoch = std::move(next);
}

std::vector<ActiveEdges> Engine::Impl::find_edges(std::span<const Vec3> positions, const Box& box)
{
  std::vector<ActiveEdges> active;
  for (const TopologyList& list : epoch->topology.lists) active.push_back(find_active_edges(list, positions, box));
  return active;
}

ModelOutput Engine::Impl::run_model(const AtomsInput& atoms, std::span<const ActiveEdges> active)
{
  const HaloExchange::Traffic before = epoch->feature_traffic();
  ModelInput input;
  input.plan_handle = communicator->num_ranks() > 1 ? epoch->features->handle() : 0;
  input.elements = shard.elements();
  input.charge = atoms.charge;
  input.multiplicity = atoms.multiplicity;
  for (std::size_t l = 0; l < active.size(); ++l) {
    input.lists.push_back({epoch->halo_elements[l], active[l].vectors, active[l].receiver, active[l].sender});
  }
  double seconds = 0;
  ModelOutput output;
  {
    const Stopwatch watch(seconds);
    output = artifact.run(input);
  }
  const HaloExchange::Traffic after = epoch->feature_traffic();
  report.messages += after.messages - before.messages;
  report.bytes += after.bytes - before.bytes;
  report.wait_seconds += after.wait_seconds - before.wait_seconds;
  const RunSeconds& run = artifact.last_run();
  report.compute_seconds += run.compute;
  report.transfer_seconds += run.upload + run.download;
  report.model_seconds += seconds - (after.wait_seconds - before.wait_seconds);
  return output;
}

void Engine::Impl::collect(const AtomsInput& atoms, std::span<const ActiveEdges> active, const ModelOutput& output)
{
  const Topology& topology = epoch->topology;
  ForceAssembly assembly(topology.num_owned + topology.num_halo(), atoms.wants_atom_virial);
  for (std::size_t l = 0; l < active.size(); ++l) assembly.add(active[l], output.edge_gradients[l]);
  bring_home(assembly.forces, *epoch->positions);
  require_finite(assembly.forces, shard.ids(), "force");
  result.energy = 0;
  for (const double energy : output.atom_energies) result.energy += energy;
  result.virial = assembly.virial;
  shard.to_caller<Vec3>(assembly.forces, result.forces);
  shard.to_caller<double>(output.atom_energies, result.atom_energies);
  result.atom_virials.clear();
  if (atoms.wants_atom_virial) {
    bring_home(assembly.atom_virials, *epoch->positions);
    shard.to_caller<Mat3>(assembly.atom_virials, result.atom_virials);
  }
}

Engine::Engine(const std::string& path, const EngineOptions& options, std::shared_ptr<Communicator> communicator)
    : impl_(std::make_unique<Impl>(path, options, std::move(communicator)))
{
}

Engine::~Engine() = default;

const Passport& Engine::passport() const noexcept { return impl_->artifact.passport(); }
std::string Engine::device() const { return impl_->artifact.device(); }
const EngineReport& Engine::report() const noexcept { return impl_->report; }
Communicator& Engine::communicator() noexcept { return *impl_->communicator; }

const StepResult& Engine::compute(const AtomsInput& atoms)
{
  Impl& self = *impl_;
  const Stopwatch watch(self.report.total_seconds);
  require_in_range("charge", atoms.charge, self.artifact.passport().charge_range);
  require_in_range("multiplicity", atoms.multiplicity, self.artifact.passport().multiplicity_range);

  const RebuildCause cause = self.decide(atoms);
  if (cause != RebuildCause::none) self.rebuild(atoms, cause);
  self.cache.tick();
  self.shard.tick();

  const auto messages = self.epoch->positions->traffic().messages;
  const std::vector<Vec3> positions = extend<Vec3>(self.shard.positions(), *self.epoch->positions);
  const std::vector<ActiveEdges> active = self.find_edges(positions, atoms.box);
  const ModelOutput output = self.run_model(atoms, active);
  self.collect(atoms, active, output);

  EngineReport& report = self.report;
  ++report.steps;
  report.position_messages += self.epoch->positions->traffic().messages - messages;
  report.num_owned = self.epoch->topology.num_owned;
  report.num_halo = self.epoch->topology.num_halo();
  report.num_peers = static_cast<std::int64_t>(self.epoch->topology.widest().plan->peers.size());
  report.num_edges = 0;
  for (const ActiveEdges& edges : active) report.num_edges += static_cast<std::int64_t>(edges.receiver.size());
  return self.result;
}

}  // namespace tessera
