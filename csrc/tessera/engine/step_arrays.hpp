// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/engine/step.hpp"

namespace tessera {

/// The arrays of a rank's step, on the artifact's device and in pinned memory, and what is queued on them.
class StepArrays {
 public:
  StepArrays(const Artifact& artifact, StreamRef stream);

  void begin_epoch(const EpochInput& epoch);
  void set_input(std::span<const Vec3> positions, std::span<const Vec3> halo_positions, const Box& box, long charge,
                 long multiplicity);

  /// What an epoch needs at least; its edges are not known yet.
  [[nodiscard]] StepExtents least_extents(const EpochInput& epoch) const;
  /// Edges of each list that the marked pairs need room for; waits for their number.
  [[nodiscard]] std::vector<std::int64_t> count_edges();
  /// Makes the room. @param counts as count_edges() gave them.
  void fit_edges(std::span<const std::int64_t> counts);

  void queue_upload();
  void queue_halo_positions();
  void queue_sums(const std::vector<at::Tensor>& outputs);
  void queue_halo_forces();
  void queue_download();

  [[nodiscard]] std::size_t num_lists() const noexcept { return lists_.size(); }
  [[nodiscard]] ListView view(std::size_t list) const;
  [[nodiscard]] const double* input() const noexcept { return input_.data(); }
  [[nodiscard]] DeviceArray<std::byte>& scratch() noexcept { return scratch_; }
  /// ARCHITECTURE.md, Inputs: views of these arrays.
  [[nodiscard]] std::vector<at::Tensor> model_inputs();

  /// What the last download brought; the device must be done.
  [[nodiscard]] StepOutput result();
  /// Owned forces (eV/Å), virial and energy (eV) in a row.
  [[nodiscard]] std::vector<double> copy_result();
  [[nodiscard]] bool has_overflowed() const;
  /// A pair of atoms closer than kCoincidentDistance, if one was found: extended rows of the widest list.
  struct Pair {
    std::int32_t receiver = 0, sender = 0;
    Shift shift{};
  };
  [[nodiscard]] std::optional<Pair> coincident_pair() const;
  [[nodiscard]] std::vector<double> atom_energies(const std::vector<at::Tensor>& outputs) const;
  [[nodiscard]] std::vector<Mat3> atom_virials(const std::vector<at::Tensor>& outputs);
  /// What the passport foresees for these extents.
  [[nodiscard]] std::int64_t foresee_bytes() const;
  [[nodiscard]] std::string describe_memory() const;

 private:
  [[nodiscard]] bool has_headroom() const noexcept { return stream_.is_gpu(); }
  [[nodiscard]] std::int64_t num_extended_rows() const { return num_rows_ + wide_slots_; }
  void make_room_for_rows();
  void fill_rows(std::span<const std::int32_t> elements);

  const Artifact& artifact_;
  StreamRef stream_;
  const DeviceTopology* topology_ = nullptr;
  std::int64_t plan_handle_ = 0;
  DeviceHaloExchange* exchange_ = nullptr;
  std::int64_t num_owned_ = 0, num_rows_ = 0, wide_slots_ = 0;
  std::vector<std::int32_t> wide_slot_;    // [widest num_halo]
  mutable std::vector<ListArrays> lists_;  // their views write
  DeviceArray<std::int64_t> element_, charge_, multiplicity_;
  DeviceArray<double> weight_;
  DeviceArray<double> input_, forces_, totals_, sums_, partial_, virials_;
  DeviceArray<double> staged_input_, staged_result_;  // pinned: input; forces, then sums
  DeviceArray<std::int64_t> staged_status_;           // pinned: [lists, 2]
  DeviceArray<std::int64_t> staged_scalars_;          // pinned
  DeviceArray<std::byte> scratch_;
};

}  // namespace tessera
