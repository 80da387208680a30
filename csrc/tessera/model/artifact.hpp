// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/types.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/model/passport.hpp"
#include "tessera/search/neighbor_list.hpp"

namespace at {
class Tensor;
}

namespace tessera {

/// One list's inputs of one step, unpadded: the active edges (d <= cutoff) and their index.
struct ListInput {
  std::span<const std::int32_t> halo_elements;  ///< [num_halo]
  std::span<const Vec3> edge_vectors;           ///< [num_edges], Å, receiver minus sender
  std::span<const std::int64_t> receiver;       ///< [num_edges], ascending
  std::span<const std::int64_t> sender;         ///< [num_edges]; owned < num_owned, halo row k = num_owned + k
};

struct ModelInput {
  std::int64_t plan_handle = 0;
  std::span<const std::int32_t> elements;  ///< [num_owned], index into the passport's elements
  long charge = 0;
  long multiplicity = 1;
  std::vector<ListInput> lists;
};

struct ModelOutput {
  std::vector<double> atom_energies;              ///< [num_owned], eV, reference energies included
  std::vector<std::vector<Vec3>> edge_gradients;  ///< per list [num_edges], dE/d(edge vector), eV/Å
};

/// A loaded artifact: pads the inputs (ARCHITECTURE.md, Inputs), runs, strips the padding.
///
/// On a GPU the padded inputs are uploaded at each run, all but the plan, and the outputs downloaded.
class Artifact {
 public:
  /// @param num_threads intra-op threads of the model, 0 = leave as they are.
  /// @param local_rank place among the ranks of this host: an artifact for a GPU runs on that one of the visible
  /// devices, modulo their number.
  /// @throws Error(collective) as read_passport(); Error(rank) if the compiled code does not load.
  explicit Artifact(const std::string& path, int num_threads = 0, int local_rank = 0);
  ~Artifact();
  Artifact(Artifact&&) noexcept;

  [[nodiscard]] const Passport& passport() const noexcept { return passport_; }

  [[nodiscard]] Device place() const noexcept;

  /// "cpu", or the device and its name: "cuda:0, NVIDIA H200".
  [[nodiscard]] std::string device() const;

  /// @throws Error(rank) with the model's own text if the compiled code or an operator fails.
  [[nodiscard]] ModelOutput run(const ModelInput& input);

  /// The same with inputs that are padded already and lie on place(), all but the plan; queued on PyTorch's current
  /// stream, and so are the outputs.
  [[nodiscard]] std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);

 private:
  struct Impl;
  Passport passport_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
