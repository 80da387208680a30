// SPDX-License-Identifier: MIT
#include "tessera/engine/step_arrays.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "tessera/base/error.hpp"
#include "tessera/device/gpu.hpp"
#include "tessera/engine/edge_kernels.hpp"
#include "tessera/model/padding.hpp"

namespace tessera {

namespace {

// Head-room of arrays on a GPU: enough that the fluctuations of a liquid seldom void a captured graph, little enough
// that padding costs little.
constexpr double kRowHeadroom = 1.0 / 64, kEdgeHeadroom = 0.03, kPairHeadroom = 0.05;
constexpr std::int64_t kLeastHeadroom = 16;

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

/// Room for `count`, which is at most `largest`; so is the room.
std::int64_t with_headroom(std::int64_t count, double fraction, std::int64_t largest = kUnbounded)
{
  const auto room = count + kLeastHeadroom + static_cast<std::int64_t>(fraction * static_cast<double>(count));
  return std::min(room, largest);
}

at::Tensor view_of(void* data, std::vector<std::int64_t> sizes, at::ScalarType type, Device device)
{
  auto options = at::TensorOptions().dtype(type);
  if (device.is_gpu()) options = options.device(at::kCUDA, static_cast<at::DeviceIndex>(device.gpu));
  return at::from_blob(data, sizes, options);
}

/// The values of an output of the model, [rows, width] in float64 on the right device.
const double* values_of(const at::Tensor& output, std::int64_t rows, std::int64_t width, const char* name)
{
  TESSERA_REQUIRE(
      output.scalar_type() == at::kDouble && output.is_contiguous() && output.dim() > 0 && output.size(0) == rows &&
          output.numel() == rows * width,
      "the model returned {} as {} values in {} rows: expected float64, {} rows of {}; re-export the artifact", name,
      output.numel(), output.dim() > 0 ? output.size(0) : 0, rows, width);
  return output.const_data_ptr<double>();
}

}  // namespace

StepArrays::StepArrays(const Artifact& artifact, StreamRef stream)
    : artifact_(artifact),
      stream_(stream),
      element_(stream.device),
      charge_(stream.device),
      multiplicity_(stream.device),
      weight_(stream.device),
      input_(stream.device),
      forces_(stream.device),
      totals_(stream.device),
      sums_(stream.device),
      partial_(stream.device),
      virials_(stream.device),
      staged_input_(stream.device, MemoryKind::pinned),
      staged_result_(stream.device, MemoryKind::pinned),
      staged_status_(stream.device, MemoryKind::pinned),
      staged_scalars_(stream.device, MemoryKind::pinned),
      scratch_(stream.device)
{
  const auto num_lists = artifact.passport().cutoffs.size();
  for (std::size_t l = 0; l < num_lists; ++l) lists_.emplace_back(stream.device);
  charge_.resize(1, 0);
  multiplicity_.resize(1, 0);
  staged_scalars_.resize(2, 0);
  sums_.resize(kTotals, 0);
  staged_status_.resize(2 * static_cast<std::int64_t>(num_lists), 0);
}

void StepArrays::begin_epoch(const EpochInput& epoch)
{
  const auto& largest = artifact_.passport().largest_step;
  topology_ = epoch.topology;
  plan_handle_ = epoch.plan_handle;
  exchange_ = epoch.exchange;
  num_owned_ = topology_->num_owned;
  if (!has_headroom()) {
    num_rows_ = padded(num_owned_);
  } else if (num_owned_ + 1 > num_rows_) {
    num_rows_ = with_headroom(num_owned_, kRowHeadroom, largest ? largest->rows : kUnbounded);
  }
  wide_slot_ = epoch.slots.back().slot;
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    const DeviceList& list = topology_->lists[l];
    lists_[l].begin_epoch(list, num_owned_, epoch.slots[l], epoch.slots.back(), epoch.halo_elements[l], kLeastExtent,
                          stream_);
    const ListExtents& room = lists_[l].extents();
    std::int64_t pairs = room.pairs;
    if (!has_headroom()) {
      pairs = list.num_edges;
    } else if (list.num_edges > pairs) {
      pairs = with_headroom(list.num_edges, kPairHeadroom);
    }
    lists_[l].make_room(num_rows_, std::max(kLeastExtent, room.edges), pairs);
  }
  wide_slots_ = lists_.back().extents().halo;
  make_room_for_rows();
  fill_rows(epoch.elements);
}

void StepArrays::make_room_for_rows()
{
  for (auto* array : {&input_, &staged_input_}) array->resize(kCellDoubles + 3 * num_extended_rows());
  staged_result_.resize(3 * num_extended_rows() + kTotals);
  forces_.resize(3 * num_extended_rows());
  totals_.resize(kTotals * num_rows_);
}

void StepArrays::fill_rows(std::span<const std::int32_t> elements)
{
  const auto num_elements = static_cast<std::int32_t>(artifact_.passport().elements.size());
  std::vector<std::int64_t> element(num_rows_, 0);
  std::vector<double> weight(num_rows_, 0);
  for (std::size_t k = 0; k < elements.size(); ++k) {
    TESSERA_REQUIRE(elements[k] >= 0 && elements[k] < num_elements, "expected element indices in [0, {}), found {}",
                    num_elements, elements[k]);
    element[k] = elements[k];
    weight[k] = 1;
  }
  element_.assign(element, stream_);
  weight_.assign(weight, stream_);
  synchronize(stream_);                                                        // the sources end here
  std::fill(staged_input_.items().begin(), staged_input_.items().end(), 0.0);  // rows that stay empty
}

void StepArrays::set_input(std::span<const Vec3> positions, std::span<const Vec3> halo_positions, const Box& box,
                           long charge, long multiplicity)
{
  TESSERA_REQUIRE(static_cast<std::int64_t>(positions.size()) == num_owned_ &&
                      halo_positions.size() == (exchange_ ? 0 : wide_slot_.size()),
                  "expected the positions of {} owned and {} halo rows, found {} and {}", num_owned_,
                  exchange_ ? 0 : wide_slot_.size(), positions.size(), halo_positions.size());
  double* input = staged_input_.data();
  std::memcpy(input, box.cell().data(), sizeof(Mat3));
  auto* rows = reinterpret_cast<Vec3*>(input + kCellDoubles);
  std::copy(positions.begin(), positions.end(), rows);
  for (std::size_t k = 0; k < halo_positions.size(); ++k) rows[num_rows_ + wide_slot_[k]] = halo_positions[k];
  staged_scalars_.items()[0] = charge;
  staged_scalars_.items()[1] = multiplicity;
}

StepExtents StepArrays::least_extents(const EpochInput& epoch) const
{
  StepExtents extents{padded(epoch.topology->num_owned), {}, std::vector<std::int64_t>(lists_.size(), kLeastExtent)};
  for (const HaloSlots& slots : epoch.slots) extents.halo_rows.push_back(std::max(kLeastExtent, slots.num_slots));
  return extents;
}

std::vector<std::int64_t> StepArrays::count_edges()
{
  std::vector<std::int64_t> counts;
  for (ListArrays& list : lists_) {
    const std::int64_t num_edges = list.status().to_host(stream_)[0];
    counts.push_back(has_headroom() ? std::max(kLeastExtent, num_edges) : padded(num_edges));
  }
  return counts;
}

void StepArrays::fit_edges(std::span<const std::int64_t> counts)
{
  const auto& largest = artifact_.passport().largest_step;
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    ListArrays& list = lists_[l];
    const ListExtents room = list.extents();
    if (!has_headroom()) {
      list.make_room(room.rows, counts[l], room.pairs);
    } else if (counts[l] > room.edges) {
      const auto edges = with_headroom(counts[l], kEdgeHeadroom, largest ? largest->edges[l] : kUnbounded);
      list.make_room(room.rows, edges, room.pairs);
    }
  }
}

void StepArrays::queue_upload()
{
  copy_bytes(input_.data(), staged_input_.data(), input_.count() * sizeof(double), stream_);
  copy_bytes(charge_.data(), staged_scalars_.data(), sizeof(std::int64_t), stream_);
  copy_bytes(multiplicity_.data(), staged_scalars_.data() + 1, sizeof(std::int64_t), stream_);
}

void StepArrays::queue_halo_positions()
{
  if (!exchange_) return;
  double* rows = input_.data() + kCellDoubles;
  exchange_->start_forward(rows, 3, Scalar::float64, stream_);
  exchange_->wait_forward(rows + 3 * num_rows_, stream_);
}

ListView StepArrays::view(std::size_t list) const { return lists_[list].view(topology_->lists[list]); }

std::vector<at::Tensor> StepArrays::model_inputs()
{
  const Device device = stream_.device;
  const auto integers = [&](std::int64_t* data, std::vector<std::int64_t> sizes) {
    return view_of(data, std::move(sizes), at::kLong, device);
  };
  std::vector<at::Tensor> inputs{at::full({1}, plan_handle_, at::kLong), integers(element_.data(), {num_rows_}),
                                 view_of(weight_.data(), {num_rows_}, at::kDouble, device),
                                 integers(charge_.data(), {1}), integers(multiplicity_.data(), {1})};
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    const ListView list = view(l);
    const auto [rows, halo, edges, pairs] = list.extents;
    inputs.push_back(integers(list.halo_element, {halo}));
    inputs.push_back(view_of(list.edge_vector, {edges, 3}, at::kDouble, device));
    inputs.push_back(integers(list.edge_receiver, {edges}));
    inputs.push_back(integers(list.edge_sender, {edges}));
    inputs.push_back(integers(list.receiver_range, {rows, 2}));
    inputs.push_back(integers(list.edge_order, {edges}));
    inputs.push_back(integers(list.sender_range, {rows + halo, 2}));
  }
  return inputs;
}

void StepArrays::queue_sums(const std::vector<at::Tensor>& outputs)
{
  clear_bytes(forces_.data(), forces_.count() * sizeof(double), stream_);
  clear_bytes(totals_.data(), totals_.count() * sizeof(double), stream_);
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    const ListView list = view(l);
    add_forces(list, values_of(outputs[l + 1], list.extents.edges, 3, "edge_gradient"),
               {forces_.data(), totals_.data()}, stream_);
  }
  add_energies(values_of(outputs[0], num_rows_, 1, "atom_energy"), view(0).num_owned, num_rows_, totals_.data(),
               stream_);
  sum_totals(totals_.data(), num_rows_, sums_.data(), partial_, stream_);
}

/// What halo rows gathered goes to their owners.
void StepArrays::queue_halo_forces()
{
  if (!exchange_) return;
  exchange_->start_reverse(forces_.data() + 3 * num_rows_, 3, Scalar::float64, stream_);
  exchange_->wait_reverse(forces_.data(), stream_);
}

void StepArrays::queue_download()
{
  double* result = staged_result_.data();
  copy_bytes(result, forces_.data(), forces_.count() * sizeof(double), stream_);
  copy_bytes(result + forces_.count(), sums_.data(), kTotals * sizeof(double), stream_);
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    copy_bytes(staged_status_.data() + 2 * l, lists_[l].status().data(), 2 * sizeof(std::int64_t), stream_);
  }
}

StepOutput StepArrays::result()
{
  StepOutput output;
  const auto* rows = reinterpret_cast<const Vec3*>(staged_result_.data());
  output.forces = {rows, static_cast<std::size_t>(num_owned_)};
  if (!exchange_) {
    output.halo_forces.reserve(wide_slot_.size());
    for (const std::int32_t slot : wide_slot_) output.halo_forces.push_back(rows[num_rows_ + slot]);
  }
  const double* sums = staged_result_.data() + forces_.count();
  std::memcpy(&output.virial, sums, sizeof(Mat3));
  output.energy = sums[kTotals - 1];
  for (std::size_t l = 0; l < lists_.size(); ++l) output.num_edges += staged_status_.data()[2 * l];
  return output;
}

std::vector<double> StepArrays::copy_result()
{
  const auto values = staged_result_.items();
  std::vector<double> copy(values.begin(), values.begin() + 3 * num_owned_);
  copy.insert(copy.end(), values.end() - kTotals, values.end());
  return copy;
}

bool StepArrays::has_overflowed() const
{
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    if (staged_status_.data()[2 * l] > lists_[l].extents().edges) return true;
  }
  return false;
}

std::optional<StepArrays::Pair> StepArrays::coincident_pair() const
{
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    const std::int64_t place = staged_status_.data()[2 * l + 1] - 1;
    if (place < 0) continue;
    const DeviceList& list = topology_->lists[l];
    Pair pair;
    copy_bytes(&pair.receiver, list.receiver.data() + place, sizeof(pair.receiver), stream_);
    copy_bytes(&pair.sender, list.sender.data() + place, sizeof(pair.sender), stream_);
    copy_bytes(&pair.shift, list.shift.data() + place, sizeof(pair.shift), stream_);
    synchronize(stream_);
    return pair;
  }
  return {};
}

std::vector<double> StepArrays::atom_energies(const std::vector<at::Tensor>& outputs) const
{
  std::vector<double> energies(num_owned_);
  copy_bytes(energies.data(), outputs[0].const_data_ptr<double>(), energies.size() * sizeof(double), stream_);
  synchronize(stream_);
  return energies;
}

std::vector<Mat3> StepArrays::atom_virials(const std::vector<at::Tensor>& outputs)
{
  virials_.resize(9 * num_extended_rows());
  clear_bytes(virials_.data(), virials_.count() * sizeof(double), stream_);
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    add_atom_virials(view(l), outputs[l + 1].const_data_ptr<double>(), virials_.data(), stream_);
  }
  const std::vector<double> values = virials_.to_host(stream_);
  const auto* rows = reinterpret_cast<const Mat3*>(values.data());
  std::vector<Mat3> virials(rows, rows + num_owned_);
  for (const std::int32_t slot : wide_slot_) virials.push_back(rows[num_rows_ + slot]);
  return virials;
}

std::int64_t StepArrays::foresee_bytes() const
{
  std::vector<std::int64_t> halo, edges;
  for (const ListArrays& list : lists_) {
    halo.push_back(list.extents().halo);
    edges.push_back(list.extents().edges);
  }
  return static_cast<std::int64_t>(artifact_.passport().memory.predict(num_rows_, halo, edges));
}

std::string StepArrays::describe_memory() const
{
  const MemoryUse use = memory_of(stream_.device);
  std::string edges;
  for (const ListArrays& list : lists_) edges += format(edges.empty() ? "{}" : " + {}", list.extents().edges);
  return format(
      "the model takes about {} MiB for {} atoms and {} edges (one number a cutoff) of this rank; {} of {} MiB of {} "
      "are free",
      foresee_bytes() >> 20, num_owned_, edges, use.free >> 20, use.total >> 20, gpu_name(stream_.device.gpu));
}

}  // namespace tessera
