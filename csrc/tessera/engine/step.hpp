// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/box.hpp"
#include "tessera/engine/engine.hpp"
#include "tessera/engine/list_arrays.hpp"
#include "tessera/model/artifact.hpp"
#include "tessera/plan/device_halo_exchange.hpp"
#include "tessera/topology/device_topology.hpp"

namespace tessera {

/// What an epoch brings to the rank's step.
struct EpochInput {
  const DeviceTopology* topology = nullptr;              ///< outlives the epoch
  std::span<const std::int32_t> elements;                ///< [num_owned]
  std::vector<std::vector<std::int32_t>> halo_elements;  ///< by list, [num_halo]
  std::vector<HaloSlots> slots;                          ///< by list
  std::int64_t plan_handle = 0;                          ///< of the ExchangeSet, 0 for none
  /// Of the widest list, for positions and forces; nullptr: they pass through the caller. Outlives the epoch.
  DeviceHaloExchange* exchange = nullptr;
  /// Changes when graphs that hold this rank's exchanges are void; empty without exchanges.
  std::function<std::int64_t()> arrangement;
};

/// Replaces each number by the largest that any rank has there; all ranks call it, in the same order.
using LargestOfRanks = std::function<void(std::span<std::int64_t>)>;

/// What one step gives, on the host; lives until the next.
struct StepOutput {
  double energy = 0;               ///< eV, of the owned atoms
  Mat3 virial{};                   ///< eV, of the owned receivers' edges
  std::span<const Vec3> forces;    ///< eV/Å, of owned rows
  std::vector<Vec3> halo_forces;   ///< eV/Å, what the owners of halo rows still have to get; none with an exchange
  std::vector<Mat3> atom_virials;  ///< eV, [num_owned + widest num_halo], if asked for
  std::int64_t num_edges = 0;      ///< of all lists
};

/// The model's step of one rank: from positions to forces, on the artifact's device.
///
/// All arrays are kept from step to step with head-room, so that a new epoch refills them in place; on the CPU they
/// have no head-room, for padding costs time there.
class Step {
 public:
  /// @param artifact outlives this. @param log as EngineOptions.
  Step(Artifact& artifact, GraphUse graph, LargestOfRanks largest, std::function<void(const std::string&)> log);
  ~Step();

  /// Where the exchange's and search's kernels shall be queued.
  [[nodiscard]] StreamRef stream() const noexcept;

  /// All ranks call this.
  /// @throws Error(collective) if a rank has more rows than the artifact was compiled for (Passport::largest_step).
  void begin_epoch(const EpochInput& epoch);

  /// All ranks call this. @param halo_positions of the widest list's halo rows, Å; none with an exchange.
  /// @throws Error(rank) if two atoms are closer than 1e-4 Å; as Artifact::run; with advice if memory runs out.
  /// @throws Error(collective) if a rank has more edges than the artifact was compiled for.
  [[nodiscard]] StepOutput run(std::span<const Vec3> positions, std::span<const Vec3> halo_positions, const Box& box,
                               long charge, long multiplicity, bool wants_atom_virial);

  /// Energies of the owned atoms in the last step, eV.
  [[nodiscard]] std::vector<double> atom_energies() const;

  struct Report {
    std::int64_t captures = 0;
    std::int64_t overflows = 0;       ///< steps that were repeated with more room for edges
    std::int64_t runs = 0;            ///< of the step, repetitions included
    std::int64_t recorded_runs = 0;   ///< times that the host queued the step kernel by kernel, to run or to capture
    std::int64_t foreseen_bytes = 0;  ///< on a GPU, by the passport
    std::size_t peak_bytes = 0;       ///< of PyTorch's allocator on a GPU
  };
  [[nodiscard]] const Report& report() const noexcept;

  /// Median time of the compiled model alone on the last step's inputs, s: what a step would cost if all else were
  /// free.
  [[nodiscard]] double time_model(int repeats);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
