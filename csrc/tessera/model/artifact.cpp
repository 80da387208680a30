// SPDX-License-Identifier: MIT
#include "tessera/model/artifact.hpp"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <omp.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/device/gpu.hpp"
#include "tessera/model/operator_support.hpp"
#include "tessera/model/package_lock.hpp"
#include "tessera/model/padding.hpp"

namespace tessera {
namespace {

/// How PyTorch multiplies float32 matrices, a setting of the process, while artifacts run: the first one sets it, the
/// last one sets it back (virtual ranks run the same artifact at once).
class MatmulScope {
 public:
  explicit MatmulScope(const std::string& matmul)
  {
    const std::lock_guard lock(mutex());
    if (depth()++ > 0) return;
    before() = at::globalContext().float32MatmulPrecision();
    at::globalContext().setFloat32MatmulPrecision(matmul == "tf32" ? "high" : "highest");
  }
  ~MatmulScope()
  {
    const std::lock_guard lock(mutex());
    if (--depth() > 0) return;
    at::globalContext().setFloat32MatmulPrecision(before() == at::Float32MatmulPrecision::HIGHEST ? "highest"
                                                  : before() == at::Float32MatmulPrecision::HIGH  ? "high"
                                                                                                  : "medium");
  }
  MatmulScope(const MatmulScope&) = delete;
  MatmulScope& operator=(const MatmulScope&) = delete;

 private:
  static std::mutex& mutex()
  {
    static std::mutex instance;
    return instance;
  }
  static int& depth()
  {
    static int instance = 0;
    return instance;
  }
  static at::Float32MatmulPrecision& before()
  {
    static at::Float32MatmulPrecision instance{};
    return instance;
  }
};

/// A view of `data`, which outlives the run.
template <typename Value>
at::Tensor view(std::vector<Value>& data, std::vector<std::int64_t> sizes)
{
  constexpr auto type = std::is_same_v<Value, std::int64_t> ? at::kLong : at::kDouble;
  return at::from_blob(data.data(), sizes, type);
}

/// One list with its padding: edges that join the padding row N-1 to itself, halo rows of element 0.
struct PaddedList {
  std::vector<std::int64_t> halo_element, receiver, sender;
  std::vector<Vec3> edge_vector;
  EdgeIndex index;

  void fill(const ListInput& list, std::int64_t num_owned, std::int64_t num_rows, double cutoff);
  void append_to(std::vector<at::Tensor>& inputs, std::int64_t num_rows);
};

void PaddedList::fill(const ListInput& list, std::int64_t num_owned, std::int64_t num_rows, double cutoff)
{
  const auto num_edges = list.receiver.size();
  TESSERA_REQUIRE(list.sender.size() == num_edges && list.edge_vectors.size() == num_edges,
                  "a list with {} receivers must have as many senders and edge vectors, found {} and {}", num_edges,
                  list.sender.size(), list.edge_vectors.size());
  const auto num_halo = static_cast<std::int64_t>(list.halo_elements.size());
  const auto capacity = padded(static_cast<std::int64_t>(num_edges));
  halo_element.assign(std::max(kLeastExtent, num_halo), 0);
  std::copy(list.halo_elements.begin(), list.halo_elements.end(), halo_element.begin());

  receiver.assign(list.receiver.begin(), list.receiver.end());
  receiver.resize(capacity, num_rows - 1);
  edge_vector.assign(list.edge_vectors.begin(), list.edge_vectors.end());
  edge_vector.resize(capacity, Vec3{kPaddingDistance * cutoff, 0, 0});
  sender.resize(capacity);
  std::int64_t previous = 0;
  for (std::size_t e = 0; e < num_edges; ++e) {
    const auto i = list.receiver[e], j = list.sender[e];
    TESSERA_REQUIRE(
        i >= previous && i < num_owned && j >= 0 && j < num_owned + num_halo,
        "edge {} joins receiver {} and sender {}: expected ascending receivers below {} and senders below {}", e, i, j,
        num_owned, num_owned + num_halo);
    sender[e] = j < num_owned ? j : j + (num_rows - num_owned);  // halo rows start behind the padded owned rows
    previous = i;
  }
  std::fill(sender.begin() + static_cast<std::ptrdiff_t>(num_edges), sender.end(), num_rows - 1);
  index = index_edges(receiver, sender, num_rows, num_rows + static_cast<std::int64_t>(halo_element.size()));
}

void PaddedList::append_to(std::vector<at::Tensor>& inputs, std::int64_t num_rows)
{
  const auto num_halo = static_cast<std::int64_t>(halo_element.size());
  const auto num_edges = static_cast<std::int64_t>(receiver.size());
  inputs.push_back(view(halo_element, {num_halo}));
  inputs.push_back(at::from_blob(edge_vector.data(), {num_edges, 3}, at::kDouble));
  inputs.push_back(view(receiver, {num_edges}));
  inputs.push_back(view(sender, {num_edges}));
  inputs.push_back(view(index.receiver_range, {num_rows, 2}));
  inputs.push_back(view(index.sender_order, {num_edges}));
  inputs.push_back(view(index.sender_range, {num_rows + num_halo, 2}));
}

/// Checks shape and type of an output and returns its rows without the padding.
template <typename Value>
std::vector<Value> first_rows(const at::Tensor& output, std::int64_t count, const char* name)
{
  constexpr std::int64_t kWidth = sizeof(Value) / sizeof(double);
  const std::int64_t capacity = padded(count);
  TESSERA_REQUIRE(
      output.scalar_type() == at::kDouble && output.is_cpu() && output.numel() == capacity * kWidth &&
          output.size(0) == capacity,
      "the model returned {} as {} values in {} rows: expected float64, {} rows of {}; re-export the artifact", name,
      output.numel(), output.dim() > 0 ? output.size(0) : 0, capacity, kWidth);
  const auto contiguous = output.contiguous();
  const auto* data = reinterpret_cast<const Value*>(contiguous.const_data_ptr<double>());
  return {data, data + count};
}

}  // namespace

struct Artifact::Impl {
  std::string path;
  int num_threads;
  at::Device device = at::kCPU;
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader;
  std::vector<std::int64_t> element, scalars;
  std::vector<double> weight;
  std::vector<PaddedList> lists;

  void use_threads() const;
  std::vector<at::Tensor> pad(const ModelInput& input, const Passport& passport);
  void require_compiled_for(const Passport& passport) const;
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs, const std::string& matmul);
};

/// The compiled code and the operators ask OpenMP, libtorch's own kernels ask ATen. OpenMP keeps the number for each
/// calling thread, so it is set where the run happens.
void Artifact::Impl::use_threads() const
{
  if (num_threads <= 0) return;
  if (at::get_num_threads() != num_threads) at::set_num_threads(num_threads);
  if (omp_get_max_threads() != num_threads) omp_set_num_threads(num_threads);
}

std::vector<at::Tensor> Artifact::Impl::pad(const ModelInput& input, const Passport& passport)
{
  TESSERA_REQUIRE(input.lists.size() == passport.cutoffs.size(), "{}: expected {} lists, one a cutoff, found {}", path,
                  passport.cutoffs.size(), input.lists.size());
  const auto num_owned = static_cast<std::int64_t>(input.elements.size());
  const auto num_rows = padded(num_owned);
  const auto num_elements = static_cast<std::int64_t>(passport.elements.size());
  const auto check_elements = [&](std::span<const std::int32_t> elements) {
    for (const auto e : elements) {
      TESSERA_REQUIRE(e >= 0 && e < num_elements, "{}: expected element indices in [0, {}), found {}", path,
                      num_elements, e);
    }
  };
  check_elements(input.elements);
  element.assign(num_rows, 0);
  std::copy(input.elements.begin(), input.elements.end(), element.begin());
  weight.assign(num_rows, 0.0);
  std::fill_n(weight.begin(), num_owned, 1.0);
  scalars = {input.plan_handle, input.charge, input.multiplicity};

  std::vector<at::Tensor> inputs{at::from_blob(&scalars[0], {1}, at::kLong), view(element, {num_rows}),
                                 view(weight, {num_rows}), at::from_blob(&scalars[1], {1}, at::kLong),
                                 at::from_blob(&scalars[2], {1}, at::kLong)};
  lists.resize(input.lists.size());
  for (std::size_t l = 0; l < lists.size(); ++l) {
    check_elements(input.lists[l].halo_elements);
    lists[l].fill(input.lists[l], num_owned, num_rows, passport.cutoffs[l]);
    lists[l].append_to(inputs, num_rows);
  }
  return inputs;
}

void Artifact::Impl::require_compiled_for(const Passport& passport) const
{
  if (!passport.largest_step) return;
  StepExtents found{static_cast<std::int64_t>(element.size()), {}, {}};
  for (const PaddedList& list : lists) {
    found.halo_rows.push_back(static_cast<std::int64_t>(list.halo_element.size()));
    found.edges.push_back(static_cast<std::int64_t>(list.receiver.size()));
  }
  const std::string excess = describe_excess(found, *passport.largest_step, passport.cutoffs);
  TESSERA_REQUIRE(excess.empty(), "{}: {}", path, excess);
}

std::vector<at::Tensor> Artifact::Impl::call(const std::vector<at::Tensor>& inputs, const std::string& matmul)
{
  (void)operators::take_error();
  try {
    const at::DeviceGuard guard(device);
    const MatmulScope precision(matmul);
    return loader->run(inputs);
  } catch (const std::exception& error) {
    // compiled code says only that "a call failed"; the operator's own text is the cause
    const auto cause = operators::take_error();
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    fail(Reach::rank, "{}: the model failed: {}", path,
         !cause.empty() ? cause
         : torch_error  ? std::string(torch_error->what_without_backtrace())
                        : std::string(error.what()));
  }
}

Artifact::Artifact(const std::string& path, int num_threads, int local_rank)
    : passport_(read_passport(path)), impl_(std::make_unique<Impl>())
{
  impl_->path = path;
  impl_->num_threads = num_threads;
  if (passport_.device == "cuda") {
    impl_->device = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(local_rank % num_gpus()));
  }
  const auto lock = lock_package_reader();
  try {
    impl_->loader = std::make_unique<torch::inductor::AOTIModelPackageLoader>(
        path, "model", /*run_single_threaded=*/true, /*num_runners=*/1, /*device_index=*/impl_->device.index());
  } catch (const std::exception& error) {
    fail(Reach::rank, "{}: the compiled code does not load: {}; re-export it on this machine with tessera-export", path,
         error.what());
  }
}

std::string Artifact::device() const
{
  const auto& device = impl_->device;
  return device.is_cpu() ? "cpu" : format("{}, {}", device.str(), gpu_name(device.index()));
}

Device Artifact::place() const noexcept { return {impl_->device.is_cpu() ? -1 : impl_->device.index()}; }

Artifact::~Artifact() = default;
Artifact::Artifact(Artifact&&) noexcept = default;

std::vector<at::Tensor> Artifact::run(const std::vector<at::Tensor>& inputs)
{
  impl_->use_threads();
  auto outputs = impl_->call(inputs, passport_.matmul);
  const auto num_lists = passport_.cutoffs.size();
  TESSERA_REQUIRE(outputs.size() == 1 + num_lists,
                  "{}: expected {} outputs (atom energies and one gradient a list), found {}; re-export the artifact",
                  impl_->path, 1 + num_lists, outputs.size());
  return outputs;
}

ModelOutput Artifact::run(const ModelInput& input)
{
  auto inputs = impl_->pad(input, passport_);
  impl_->require_compiled_for(passport_);
  for (std::size_t k = 1; k < inputs.size(); ++k) inputs[k] = inputs[k].to(impl_->device);
  auto outputs = run(inputs);
  for (auto& output : outputs) output = output.cpu();
  ModelOutput result;
  result.atom_energies =
      first_rows<double>(outputs[0], static_cast<std::int64_t>(input.elements.size()), "atom_energy");
  for (std::size_t l = 0; l < input.lists.size(); ++l) {
    const auto count = static_cast<std::int64_t>(input.lists[l].receiver.size());
    result.edge_gradients.push_back(first_rows<Vec3>(outputs[l + 1], count, "edge_gradient"));
  }
  return result;
}

}  // namespace tessera
