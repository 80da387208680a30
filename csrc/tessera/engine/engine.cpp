// SPDX-License-Identifier: MIT
#include "tessera/engine/engine.hpp"

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/engine/assembly.hpp"
#include "tessera/engine/geometry.hpp"
#include "tessera/engine/row_order.hpp"
#include "tessera/model/artifact.hpp"
#include "tessera/topology/topology_cache.hpp"

namespace tessera {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

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

}  // namespace

struct Engine::Impl {
  Impl(const std::string& path, const EngineOptions& options, std::shared_ptr<Communicator> comm)
      : artifact(path, options.num_threads),
        communicator(std::move(comm)),
        cache(artifact.passport().largest_cutoff(), options.skin, options.rebuild)
  {
  }

  Artifact artifact;
  std::shared_ptr<Communicator> communicator;
  TopologyCache cache;
  RowOrder order;
  std::optional<Topology> topology;
  StepResult result;
  EngineReport report;

  void rebuild(const AtomsInput& atoms);
  ModelOutput run_model(const AtomsInput& atoms, std::span<const ActiveEdges> active);
  void collect(const AtomsInput& atoms, std::span<const ActiveEdges> active, const ModelOutput& output);
};

void Engine::Impl::rebuild(const AtomsInput& atoms)
{
  const auto start = Clock::now();
  order.assign(atoms.ids, atoms.elements, atoms.positions);
  cache.remember(order.positions(), atoms.box);
  const auto& cutoffs = artifact.passport().cutoffs;
  topology = build_topology(order.positions(), atoms.box, cutoffs, cache.skin(), cache.epoch());
  ++report.rebuilds;
  report.search_seconds += seconds_since(start);
}

ModelOutput Engine::Impl::run_model(const AtomsInput& atoms, std::span<const ActiveEdges> active)
{
  const auto start = Clock::now();
  ModelInput input;
  input.elements = order.elements();
  input.charge = atoms.charge;
  input.multiplicity = atoms.multiplicity;
  for (const ActiveEdges& edges : active) input.lists.push_back({{}, edges.vectors, edges.receiver, edges.sender});
  ModelOutput output = artifact.run(input);
  report.model_seconds += seconds_since(start);
  return output;
}

void Engine::Impl::collect(const AtomsInput& atoms, std::span<const ActiveEdges> active, const ModelOutput& output)
{
  ForceAssembly assembly(topology->num_owned, atoms.wants_atom_virial);
  for (std::size_t l = 0; l < active.size(); ++l) {
    assembly.add(topology->lists[l], topology->num_owned, active[l], output.edge_gradients[l]);
  }
  require_finite(assembly.forces, order.ids(), "force");
  result.energy = 0;
  for (const double energy : output.atom_energies) result.energy += energy;
  result.virial = assembly.virial;
  order.to_caller(assembly.forces, result.forces);
  order.to_caller(output.atom_energies, result.atom_energies);
  result.atom_virials.clear();
  if (atoms.wants_atom_virial) order.to_caller(assembly.atom_virials, result.atom_virials);
}

Engine::Engine(const std::string& path, const EngineOptions& options, std::shared_ptr<Communicator> communicator)
{
  if (communicator->num_ranks() > 1) {
    fail(Reach::collective, "this version of Tessera runs on 1 MPI rank, found {}: start lmp without mpiexec",
         communicator->num_ranks());
  }
  impl_ = std::make_unique<Impl>(path, options, std::move(communicator));
}

Engine::~Engine() = default;

const Passport& Engine::passport() const noexcept { return impl_->artifact.passport(); }
const EngineReport& Engine::report() const noexcept { return impl_->report; }

const StepResult& Engine::compute(const AtomsInput& atoms)
{
  const auto start = Clock::now();
  Impl& self = *impl_;
  require_finite(atoms.positions, atoms.ids, "position");

  const bool same_atoms = self.topology && (!atoms.is_reordered || self.order.relabel(atoms.ids, atoms.elements));
  if (same_atoms) self.order.update(atoms.positions);
  const RebuildCause local_cause =
      !self.topology ? RebuildCause::first : (same_atoms ? RebuildCause::none : RebuildCause::migration);
  const RebuildCause cause =
      self.cache.vote(self.order.positions(), atoms.box, local_cause, true, *self.communicator);
  if (cause != RebuildCause::none) self.rebuild(atoms);
  self.cache.tick();

  std::vector<ActiveEdges> active;
  for (const TopologyList& list : self.topology->lists) {
    active.push_back(find_active_edges(list, self.topology->num_owned, self.order.positions(), self.order.ids(), atoms.box));
  }
  const ModelOutput output = self.run_model(atoms, active);
  self.collect(atoms, active, output);

  ++self.report.steps;
  self.report.num_owned = self.topology->num_owned;
  self.report.num_edges = 0;
  for (const ActiveEdges& edges : active) self.report.num_edges += static_cast<std::int64_t>(edges.receiver.size());
  self.report.total_seconds += seconds_since(start);
  return self.result;
}

}  // namespace tessera
