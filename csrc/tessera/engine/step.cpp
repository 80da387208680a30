// SPDX-License-Identifier: MIT
#include "tessera/engine/step.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "tessera/base/error.hpp"
#include "tessera/device/gpu.hpp"
#include "tessera/engine/edge_kernels.hpp"
#include "tessera/engine/step_arrays.hpp"
#include "tessera/model/torch_stream.hpp"
#include "tessera/search/edge_vector.hpp"

namespace tessera {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start)
{
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

struct Step::Impl {
  Impl(Artifact& model, GraphUse use, LargestOfRanks largest, std::function<void(const std::string&)> to_log)
      : artifact(model),
        graph_use(use),
        largest_of_ranks(std::move(largest)),
        log(std::move(to_log)),
        own_stream(model.place()),
        stream(own_stream),
        arrays(model, stream)
  {
    reset_peak_bytes(stream.device);
  }

  Artifact& artifact;
  GraphUse graph_use;
  LargestOfRanks largest_of_ranks;
  std::function<void(const std::string&)> log;
  Stream own_stream;
  StreamRef stream;
  StepArrays arrays;
  std::vector<at::Tensor> outputs;            // of the last run; in a graph's memory if it was captured
  bool must_fit = true;                       // the room for edges has not been compared with this epoch's number
  std::vector<ListView> captured;             // what the graph has been recorded with
  std::function<std::int64_t()> arrangement;  // of the exchanges
  std::int64_t captured_arrangement = 0;
  CapturedGraph graph;
  std::int64_t age = 0;  // steps since the engine was made
  Report report;

  [[nodiscard]] bool any_rank(bool mine) const;
  void require_compiled_for(StepExtents extents) const;
  void mark();
  void fit();
  void compute();
  void enqueue_all();
  void launch();
  void launch_directly();
  void capture(const std::string& cause);
  [[nodiscard]] std::string reason_to_capture() const;
  void check_replay();
  [[nodiscard]] bool has_overflowed();
  template <typename Body>
  void advise_if_out_of_memory(Body&& body);
  void check_coincidence(std::span<const Vec3> positions, std::span<const Vec3> halo, const Box& box);
};

/// Ranks that exchange must queue alike: what one repeats or records, all do.
bool Step::Impl::any_rank(bool mine) const
{
  std::int64_t any = mine ? 1 : 0;
  largest_of_ranks(std::span(&any, 1));
  return any != 0;
}

/// Refuses, on all ranks alike, what the model was not compiled for.
void Step::Impl::require_compiled_for(StepExtents extents) const
{
  const Passport& passport = artifact.passport();
  if (!passport.largest_step) return;
  largest_of_ranks(std::span(&extents.rows, 1));
  largest_of_ranks(extents.halo_rows);
  largest_of_ranks(extents.edges);
  const std::string excess = describe_excess(extents, *passport.largest_step, passport.cutoffs);
  if (!excess.empty()) fail(Reach::collective, "{}", excess);
}

/// Brings the positions to the device and marks the pairs that are edges now.
void Step::Impl::mark()
{
  arrays.queue_upload();
  arrays.queue_halo_positions();
  for (std::size_t l = 0; l < arrays.num_lists(); ++l)
    mark_edges(arrays.view(l), arrays.input(), stream, arrays.scratch());
}

/// Makes room for the marked edges; says once, before the model runs, what it will take.
void Step::Impl::fit()
{
  const std::vector<std::int64_t> edges = arrays.count_edges();
  require_compiled_for({0, std::vector<std::int64_t>(edges.size(), 0), edges});
  arrays.fit_edges(edges);
  must_fit = false;
  if (!stream.is_gpu()) return;
  const bool is_first = report.foreseen_bytes == 0;
  report.foreseen_bytes = arrays.foresee_bytes();
  if (is_first && log) log(arrays.describe_memory());
}

/// From marked edges to forces on the host.
void Step::Impl::compute()
{
  for (std::size_t l = 0; l < arrays.num_lists(); ++l) write_edges(arrays.view(l), arrays.input(), stream);
  outputs = artifact.run(arrays.model_inputs());
  arrays.queue_sums(outputs);
  arrays.queue_halo_forces();
  arrays.queue_download();
  ++report.recorded_runs;
}

void Step::Impl::enqueue_all()
{
  mark();
  compute();
}

/// Kernel by kernel. The first step of an epoch, and on the CPU every step, waits for the number of edges.
void Step::Impl::launch_directly()
{
  outputs.clear();  // the last step's gradients of edges must not lie beside this step's memory
  mark();
  if (must_fit || !stream.is_gpu()) fit();
  compute();
}

std::string Step::Impl::reason_to_capture() const
{
  if (!graph.is_captured()) return report.captures == 0 ? "first step" : "the last one is void";
  for (std::size_t l = 0; l < captured.size(); ++l) {
    const ListView now = arrays.view(l);
    const auto &then = captured[l].extents, &next = now.extents;
    if (next.rows != then.rows) return format("rows {} -> {}", then.rows, next.rows);
    if (next.edges != then.edges) return format("edges of list {} {} -> {}", l, then.edges, next.edges);
    if (next.halo != then.halo) return format("halo rows of list {} {} -> {}", l, then.halo, next.halo);
    if (next.pairs != then.pairs) return format("pairs of list {} {} -> {}", l, then.pairs, next.pairs);
    if (!(now == captured[l])) return format("arrays of list {} have moved", l);
  }
  if (arrangement && arrangement() != captured_arrangement)
    return "peers, or rows exchanged with one, beyond their room";
  return {};
}

/// Runs once directly, which sizes every buffer and loads every kernel, then records.
void Step::Impl::capture(const std::string& cause)
{
  graph.reset();
  outputs.clear();
  release_cached_memory(stream.device);
  launch_directly();
  synchronize(stream);
  outputs.clear();
  release_cached_memory(stream.device);  // the graph's own memory takes its place
  graph.capture(stream, [this] { enqueue_all(); });
  captured.clear();
  for (std::size_t l = 0; l < arrays.num_lists(); ++l) captured.push_back(arrays.view(l));
  if (arrangement) captured_arrangement = arrangement();
  ++report.captures;
  if (log) log("step recorded as a graph: " + cause);
}

void Step::Impl::launch()
{
  if (!stream.is_gpu() || graph_use == GraphUse::off) {
    launch_directly();
    return;
  }
  if (must_fit) {  // of a new epoch: its edges may need more room than the graph has
    mark();
    fit();
  }
  const std::string cause = reason_to_capture();
  if (any_rank(!cause.empty())) capture(!cause.empty() ? cause : "another rank's arrays");
  graph.replay();
}

/// Compares what the replay gave with the same step, kernel by kernel.
void Step::Impl::check_replay()
{
  synchronize(stream);
  const std::vector<double> replayed = arrays.copy_result();
  const std::vector<at::Tensor> of_graph = outputs;
  enqueue_all();
  synchronize(stream);
  const std::vector<double> direct = arrays.copy_result();
  outputs = of_graph;
  const double tolerance = artifact.passport().dtype == "float64" ? 1e-10 : 1e-5;
  double largest = 0, difference = 0;
  for (std::size_t k = 0; k < direct.size(); ++k) {
    largest = std::max(largest, std::abs(direct[k]));
    const double d = std::abs(direct[k] - replayed[k]);
    difference = std::isnan(d) ? d : std::max(difference, d);
  }
  TESSERA_REQUIRE(difference <= tolerance * std::max(1.0, largest),
                  "graph check: expected replay and direct execution to agree to {} of {}, found a difference of {} "
                  "(eV, eV/Å); run with `graph off` and report it",
                  tolerance, largest, difference);
}

/// Whether any rank found more edges than it has room for; the step is void then.
bool Step::Impl::has_overflowed()
{
  ++report.runs;
  if (!stream.is_gpu() || !any_rank(arrays.has_overflowed())) return false;
  ++report.overflows;
  must_fit = true;
  return true;
}

void Step::Impl::check_coincidence(std::span<const Vec3> positions, std::span<const Vec3> halo, const Box& box)
{
  const auto pair = arrays.coincident_pair();
  if (!pair) return;
  const auto num_owned = static_cast<std::int32_t>(positions.size());
  const Vec3& at = positions[pair->receiver];
  const Vec3& other = pair->sender < num_owned ? positions[pair->sender] : halo[pair->sender - num_owned];
  const Vec3 v = edge_vector(at, other, pair->shift, box);
  fail(Reach::rank,
       "two atoms at ({}, {}, {}) Å are {} Å apart; the model needs at least {} Å: remove overlapping atoms", at[0],
       at[1], at[2], std::sqrt(dot(v, v)), kCoincidentDistance);
}

/// Runs `body`; a failure for want of memory, which compiled code does not name, becomes an error that says so.
template <typename Body>
void Step::Impl::advise_if_out_of_memory(Body&& body)
{
  const std::size_t failures = num_out_of_memory(stream.device);
  try {
    body();
  } catch (const std::exception& error) {
    if (num_out_of_memory(stream.device) == failures) throw;
    graph.reset();
    fail(Reach::rank,
         "out of GPU memory: {}; use more GPUs, or export the model again with a smaller --recompute budget",
         arrays.describe_memory());
  }
}

Step::Step(Artifact& artifact, GraphUse graph, LargestOfRanks largest, std::function<void(const std::string&)> log)
    : impl_(std::make_unique<Impl>(artifact, graph, std::move(largest), std::move(log)))
{
}

Step::~Step() = default;

StreamRef Step::stream() const noexcept { return impl_->stream; }
const Step::Report& Step::report() const noexcept { return impl_->report; }

void Step::begin_epoch(const EpochInput& epoch)
{
  impl_->require_compiled_for(impl_->arrays.least_extents(epoch));
  impl_->arrays.begin_epoch(epoch);
  impl_->arrangement = epoch.arrangement;
  impl_->must_fit = true;
}

StepOutput Step::run(std::span<const Vec3> positions, std::span<const Vec3> halo_positions, const Box& box, long charge,
                     long multiplicity, bool wants_atom_virial)
{
  Impl& self = *impl_;
  const TorchStreamScope scope(self.stream);
  self.arrays.set_input(positions, halo_positions, box, charge, multiplicity);
  self.advise_if_out_of_memory([&] {
    do {
      self.launch();
      synchronize(self.stream);
    } while (self.has_overflowed());
    self.check_coincidence(positions, halo_positions, box);
    if (self.graph_use == GraphUse::check && self.graph.is_captured() && self.age % kGraphCheckInterval == 0) {
      self.check_replay();
    }
  });
  ++self.age;
  StepOutput output = self.arrays.result();
  if (wants_atom_virial) output.atom_virials = self.arrays.atom_virials(self.outputs);
  self.report.peak_bytes = std::max(self.report.peak_bytes, peak_bytes(self.stream.device));
  return output;
}

std::vector<double> Step::atom_energies() const { return impl_->arrays.atom_energies(impl_->outputs); }

double Step::time_model(int repeats)
{
  Impl& self = *impl_;
  const TorchStreamScope scope(self.stream);
  self.graph.reset();  // its memory is needed
  self.outputs.clear();
  std::vector<double> seconds;
  self.advise_if_out_of_memory([&] {
    for (int k = 0; k < repeats; ++k) {
      release_cached_memory(self.stream.device);
      synchronize(self.stream);
      const auto start = std::chrono::steady_clock::now();
      (void)self.artifact.run(self.arrays.model_inputs());
      synchronize(self.stream);
      seconds.push_back(seconds_since(start));
    }
  });
  std::sort(seconds.begin(), seconds.end());
  return seconds.empty() ? 0 : seconds[seconds.size() / 2];
}

}  // namespace tessera
