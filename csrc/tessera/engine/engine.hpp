// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/box.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/model/passport.hpp"

namespace tessera {

struct EngineOptions {
  double skin = 1.0;          ///< Å
  std::int64_t rebuild = 0;   ///< steps between forced rebuilds; 0: only when an atom has moved skin/2
  int num_threads = 0;        ///< intra-op threads of the model; 0: leave as they are
};

/// The atoms that this rank's caller holds (a LAMMPS brick, or all of them), in the caller's order.
struct AtomsInput {
  std::span<const Vec3> positions;          ///< Å, unwrapped (continuous in time)
  std::span<const std::int32_t> elements;   ///< index into the passport's elements; -1: Tessera does not see this atom
  std::span<const std::int64_t> ids;        ///< unique over all ranks, > 0
  Box box;
  bool is_reordered = false;  ///< the caller's order or set of atoms changed since the last call
  bool wants_atom_virial = false;
  long charge = 0;            ///< total, e
  long multiplicity = 1;
};

/// In the caller's order. The scalars are this rank's share: their sum over ranks is the system's value.
struct StepResult {
  double energy = 0;                   ///< eV
  Mat3 virial{};                       ///< eV, -dE/dstrain (LAMMPS's sign: positive pushes outwards)
  std::vector<Vec3> forces;            ///< eV/Å
  std::vector<double> atom_energies;   ///< eV
  std::vector<Mat3> atom_virials;      ///< eV, -sum v (x) g, half of each edge to either end; if wanted
};

struct EngineReport {
  std::int64_t steps = 0;
  std::int64_t rebuilds = 0;
  std::int64_t num_owned = 0, num_halo = 0, num_edges = 0;
  double search_seconds = 0, model_seconds = 0, total_seconds = 0;
};

/// Energy, forces and virial of one system, on one rank or many: the life of one step.
class Engine {
 public:
  /// @throws Error as Artifact.
  Engine(const std::string& path, const EngineOptions& options, std::shared_ptr<Communicator> communicator);
  ~Engine();

  [[nodiscard]] const Passport& passport() const noexcept;
  [[nodiscard]] const EngineReport& report() const noexcept;

  /// All ranks call this together. The result lives until the next call.
  /// @throws Error(rank) for coincident atoms (d < 1e-4 Å) or non-finite positions or results.
  const StepResult& compute(const AtomsInput& atoms);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
