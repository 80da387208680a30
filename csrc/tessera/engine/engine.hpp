// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/box.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/model/passport.hpp"
#include "tessera/partition/curve.hpp"
#include "tessera/search/candidates.hpp"
#include "tessera/search/sender_order.hpp"
#include "tessera/topology/topology_cache.hpp"

namespace tessera {

/// How a GPU's step is launched.
enum class GraphUse {
  off,    ///< kernel by kernel
  on,     ///< recorded once, replayed as one launch
  check,  ///< as on, and every kGraphCheckInterval steps compared with kernel by kernel; needs the memory twice
};

inline constexpr std::int64_t kGraphCheckInterval = 50;  // steps

/// How rows travel between ranks whose model computes on a GPU.
enum class ExchangeRoute {
  automatic,  ///< nccl where every rank has a GPU of its own, staged elsewhere
  nccl,       ///< from GPU to GPU; refused where that is impossible
  staged,     ///< through page-locked memory and the communicator
  messages,   ///< the kernels of nccl, with the communicator's messages in its place: for models on the CPU, in tests
};

/// What shards are balanced by.
enum class Balance { atoms, edges };

struct EngineOptions {
  double skin = 1.0;         ///< Å
  std::int64_t rebuild = 0;  ///< steps between forced rebuilds; 0: only when an atom has moved skin/2
  std::int64_t recut = 100;  ///< steps after which the shards are cut anew at the latest; 0: only by displacement
  CurveKind curve = CurveKind::hilbert;
  Balance balance = Balance::atoms;
  PeerScheme peers = PeerScheme::multi_box;
  std::string search = "cells";                     ///< exact pair search: "cells" or "faiss" (see make_pair_search)
  SenderOrder edge_order = SenderOrder::scattered;  ///< of lists that a GPU finds; the host's are ascending
  bool overlap = true;  ///< exchange features while the model computes what needs none of them
  ExchangeRoute exchange = ExchangeRoute::automatic;
  GraphUse graph = GraphUse::on;  ///< of a GPU's step; where features pass through the host it is off
  /// Takes lines for the log of this rank: memory foreseen on a GPU, graphs recorded and why. May be empty.
  std::function<void(const std::string&)> log;
  /// Place among the ranks of this host, by which GPUs are dealt out; -1: among those of the communicator. All ranks
  /// give one or none does.
  int local_rank = -1;
  int num_threads = 0;  ///< intra-op threads of the model; 0: leave as they are
};

/// The atoms that this rank's caller holds (a LAMMPS brick, or all of them), in the caller's order.
struct AtomsInput {
  std::span<const Vec3> positions;         ///< Å, unwrapped (continuous in time)
  std::span<const std::int32_t> elements;  ///< index into the passport's elements; -1: Tessera does not see this atom
  std::span<const std::int64_t> ids;       ///< unique over all ranks, > 0
  Box box;                                 ///< the same on all ranks
  bool is_reordered = false;        ///< this caller's order or set of atoms, or an element, changed since the last call
  bool wants_atom_virials = false;  ///< the same on all ranks
  bool wants_atom_energies = false;  ///< the same on all ranks
  long charge = 0;                   ///< total, e
  long multiplicity = 1;
};

/// In the caller's order. The scalars are this rank's share: their sum over ranks is the system's value.
struct StepResult {
  double energy = 0;                  ///< eV
  double reference_energy = 0;        ///< eV, the model's reference energies, which `energy` includes
  Mat3 virial{};                      ///< eV, -dE/dstrain (LAMMPS's sign: positive pushes outwards)
  std::vector<Vec3> forces;           ///< eV/Å
  std::vector<double> atom_energies;  ///< eV; if wanted
  std::vector<Mat3> atom_virials;     ///< eV, -sum v (x) g, half of each edge to either end; if wanted
};

/// Counts and times of one rank since the engine was made; differences of two reports describe a run.
struct EngineReport {
  std::int64_t steps = 0;
  std::array<std::int64_t, kNumRebuildCauses> rebuilds{};  ///< by RebuildCause
  std::int64_t cuts = 0;
  std::int64_t num_owned = 0, num_halo = 0, num_edges = 0, num_peers = 0;  ///< of the last step
  std::int64_t messages = 0, bytes = 0;                                    ///< features, sent
  std::int64_t position_messages = 0;                                      ///< halo positions and forces, sent
  double reshard_seconds = 0, search_seconds = 0, wait_seconds = 0, model_seconds = 0, total_seconds = 0;
  std::int64_t captures = 0;        ///< graphs recorded
  std::int64_t repeated_steps = 0;  ///< for want of room for edges
  std::int64_t foreseen_bytes = 0;  ///< of the model on a GPU
  std::int64_t peak_bytes = 0;      ///< what it took
  std::int64_t device_bytes = 0;    ///< of the GPU in all; 0 on the CPU

  [[nodiscard]] std::int64_t num_rebuilds() const;
};

/// What happened between two reports: a line of rebuilds and their causes, then a table of minimum, average and maximum
/// over the ranks of atoms, halo, edges and peers (of the last step), messages and times (a step). Every line begins
/// with "Tessera: ". Empty if there was no step. All ranks call this; each gets the same text.
[[nodiscard]] std::string describe_load(const EngineReport& before, const EngineReport& now,
                                        Communicator& communicator);

/// Energy, forces and virial of one system, on one rank or many: the life of one step.
class Engine {
 public:
  /// @throws Error as Artifact.
  Engine(const std::string& path, const EngineOptions& options, std::shared_ptr<Communicator> communicator);
  ~Engine();

  [[nodiscard]] const Passport& passport() const noexcept;
  /// As Artifact::device().
  [[nodiscard]] std::string device() const;
  /// How this rank's model, search and exchange run, in a few words for a log.
  [[nodiscard]] std::string describe_device() const;
  [[nodiscard]] const EngineReport& report() const noexcept;
  [[nodiscard]] Communicator& communicator() noexcept;

  /// Median time of the compiled model alone on the last step's inputs, s, on this rank: what a step would take if all
  /// else were free. Only on one rank, after a step; the next one records its graph anew.
  [[nodiscard]] double time_model(int repeats);

  /// All ranks call this together. The result lives until the next call.
  /// @throws Error(rank) for coincident atoms (d < 1e-4 Å) or non-finite positions or results.
  /// @throws Error(collective) if another rank failed before the vote, or an id occurs twice.
  const StepResult& compute(const AtomsInput& atoms);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
