// SPDX-License-Identifier: MIT
#include "tessera/model/passport.hpp"

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tessera/base/error.hpp"
#include "tessera/device/gpu.hpp"
#include "tessera/model/json.hpp"
#include "tessera/model/package_lock.hpp"

namespace tessera {
namespace {

constexpr int kFormat = 1;
constexpr const char* kExport = "tessera-export model.pt -o model.pt2";

template <typename... Args>
[[noreturn]] void refuse(const std::string& path, std::string_view pattern, const Args&... args)
{
  fail(Reach::collective, "{}: {}", path, format(pattern, args...));
}

/// A zip file starts with PK\3\4 and ends with a record PK\5\6 of 22 bytes and a comment, whose length it holds.
void require_whole_zip(const std::string& path)
{
  namespace fs = std::filesystem;
  std::error_code status;
  if (!fs::exists(path, status)) {
    refuse(path, "expected an artifact, found no such file; write one with {}", kExport);
  }
  if (!fs::is_regular_file(path, status)) refuse(path, "expected an artifact file (.pt2), found a folder or device");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(path, "expected a readable file, cannot open it; check its permissions");

  const auto size = static_cast<std::int64_t>(fs::file_size(path));
  std::string head(4, '\0');
  file.read(head.data(), 4);
  if (head != std::string("PK\3\4", 4)) {
    refuse(path,
           "expected an artifact (a zip archive, first bytes PK\\3\\4), found another kind of file of {} bytes; "
           "write one with {}",
           size, kExport);
  }
  constexpr std::int64_t kRecord = 22, kLongestComment = 65535;
  std::string tail(std::min(size, kRecord + kLongestComment), '\0');
  file.clear();
  file.seekg(size - static_cast<std::int64_t>(tail.size()));
  file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  const auto record = tail.rfind(std::string("PK\5\6", 4));
  if (record != std::string::npos && record + kRecord <= tail.size()) {
    const auto comment =
        static_cast<unsigned char>(tail[record + 20]) + 256 * static_cast<unsigned char>(tail[record + 21]);
    if (record + kRecord + comment == tail.size()) return;
  }
  refuse(path,
         "expected a whole archive, found {} bytes without the record that ends one: the file is truncated; "
         "copy it again or write it again with {}",
         size, kExport);
}

/// The text under the metadata key "tessera".
std::string stored_json(const std::string& path)
{
  const auto lock = lock_package_reader();
  std::unordered_map<std::string, std::string> metadata;
  try {
    metadata = torch::inductor::AOTIModelPackageLoader::load_metadata_from_package(path, "model");
  } catch (const c10::Error& error) {
    refuse(path,
           "expected an AOTInductor package, found another archive (a checkpoint?): {}; write an artifact from a "
           "checkpoint with {}",
           error.what_without_backtrace(), kExport);
  } catch (const std::exception& error) {
    refuse(path, "expected an AOTInductor package, found another or a damaged archive: {}; write it again with {}",
           error.what(), kExport);
  }
  const auto found = metadata.find("tessera");
  if (found == metadata.end()) {
    refuse(path,
           "expected a passport (metadata key \"tessera\"), found an AOTInductor package without one; write it "
           "with {}",
           kExport);
  }
  return found->second;
}

/// Typed access to the keys of the passport; each miss names the key, the file and the way out.
class Fields {
 public:
  Fields(const std::string& path, const Json& json, const char* of = "") : path_(path), of_(of)
  {
    object_ = std::get_if<Json::Object>(&json.value);
    if (object_) return;
    refuse(path, "expected the passport{} to be a JSON object, found {}; re-export with {}",
           of_.empty() ? of_ : " key \"" + of_ + "\"", json.kind(), kExport);
  }

  const Json& at(const char* key) const
  {
    const auto found = object_->find(key);
    if (found == object_->end()) {
      refuse(path_, "expected passport key \"{}\", found none; re-export with {}", name(key), kExport);
    }
    return found->second;
  }

  template <typename T>
  const T& get(const char* key, const Json& json, const char* kind) const
  {
    const auto* result = std::get_if<T>(&json.value);
    if (!result) {
      refuse(path_, "expected {} in passport key \"{}\", found {}; re-export with {}", kind, name(key), json.kind(),
             kExport);
    }
    return *result;
  }

  std::string text(const char* key) const { return get<std::string>(key, at(key), "a string"); }
  bool flag(const char* key) const { return get<bool>(key, at(key), "a boolean"); }
  double number(const char* key) const { return get<double>(key, at(key), "a number"); }
  int integer(const char* key) const { return static_cast<int>(whole(key, at(key))); }

  /// The value under a key that may be absent or null.
  const Json* optional(const char* key) const
  {
    const auto found = object_->find(key);
    const bool is_absent = found == object_->end() || std::holds_alternative<std::nullptr_t>(found->second.value);
    return is_absent ? nullptr : &found->second;
  }

  std::vector<double> numbers(const char* key) const
  {
    std::vector<double> result;
    for (const auto& item : get<Json::Array>(key, at(key), "an array")) {
      result.push_back(get<double>(key, item, "numbers"));
    }
    return result;
  }

  /// As many numbers as the model has lists.
  std::vector<double> numbers(const char* key, std::size_t num_lists) const
  {
    auto result = numbers(key);
    if (result.size() != num_lists) {
      refuse(path_, "expected {} numbers, one a cutoff, in passport key \"{}\", found {}; re-export with {}", num_lists,
             name(key), result.size(), kExport);
    }
    return result;
  }

  /// The keys of the object under `key`.
  Fields inside(const char* key) const { return Fields(path_, at(key), key); }

  std::vector<std::string> texts(const char* key) const
  {
    std::vector<std::string> result;
    for (const auto& item : get<Json::Array>(key, at(key), "an array")) {
      result.push_back(get<std::string>(key, item, "strings"));
    }
    return result;
  }

  std::array<long, 2> range(const char* key) const
  {
    const auto& items = get<Json::Array>(key, at(key), "an array");
    if (items.size() != 2) {
      refuse(path_, "expected [lowest, highest] in passport key \"{}\", found {} values; re-export with {}", key,
             items.size(), kExport);
    }
    return {whole(key, items[0]), whole(key, items[1])};
  }

 private:
  long whole(const char* key, const Json& json) const
  {
    const double value = get<double>(key, json, "a number");
    if (value != std::floor(value) || std::abs(value) > 1e9) {
      refuse(path_, "expected an integer in passport key \"{}\", found {}; re-export with {}", key, value, kExport);
    }
    return static_cast<long>(value);
  }

  /// As messages spell it: "memory.bytes" for a key of an inner object.
  std::string name(const char* key) const { return of_.empty() ? key : of_ + "." + key; }

  const std::string& path_;
  std::string of_;
  const Json::Object* object_;
};

MemoryModel read_memory(const Fields& fields, std::size_t num_lists)
{
  MemoryModel memory;
  memory.bytes_per_row = fields.number("bytes_per_row");
  memory.bytes_per_halo_row = fields.numbers("bytes_per_halo_row", num_lists);
  memory.bytes_per_edge = fields.numbers("bytes_per_edge", num_lists);
  memory.bytes = fields.number("bytes");
  memory.measured = fields.flag("measured");
  return memory;
}

/// Bounds of extents; a number of JSON holds counts of up to 2^53 exactly.
StepExtents read_largest_step(const std::string& path, const Fields& fields, std::size_t num_lists)
{
  const auto count = [&](const char* key, double value) {
    if (!(value >= 2 && value <= 0x1p53) || value != std::floor(value)) {
      refuse(path, "expected counts of at least 2 in passport key \"largest_step.{}\", found {}; re-export with {}",
             key, value, kExport);
    }
    return static_cast<std::int64_t>(value);
  };
  StepExtents largest;
  largest.rows = count("rows", fields.number("rows"));
  for (const double value : fields.numbers("halo_rows", num_lists)) {
    largest.halo_rows.push_back(count("halo_rows", value));
  }
  for (const double value : fields.numbers("edges", num_lists)) largest.edges.push_back(count("edges", value));
  return largest;
}

void require_this_torch(const std::string& path, const std::string& exported_with)
{
  const auto version = aoti_torch_abi_version();  // of the library that runs, which may not be the one compiled against
  const auto minor = format("{}.{}", version >> 56, (version >> 48) & 0xFF);
  const auto second_dot = exported_with.find('.', exported_with.find('.') + 1);
  if (exported_with.substr(0, second_dot) != minor) {
    refuse(path,
           "expected an artifact compiled with torch {}, which runs here, found one of torch {}; re-export it with "
           "this torch ({}) or install torch {}",
           minor, exported_with, kExport, exported_with);
  }
}

bool has_instructions(std::string_view capability)
{
#if defined(__x86_64__)
  if (capability.starts_with("avx512")) return __builtin_cpu_supports("avx512f");
  if (capability.starts_with("avx2")) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return capability.starts_with("default");
#else
  return !capability.starts_with("avx");  // the other names are of one architecture each, and dlopen refuses the rest
#endif
}

/// Machine code for SM x.y runs on x.y and later minor versions of x.
bool runs_on(std::string_view wanted, std::string_view found)
{
  const auto wanted_dot = wanted.find('.'), found_dot = found.find('.');
  if (wanted_dot == std::string_view::npos || wanted.substr(0, wanted_dot) != found.substr(0, found_dot)) return false;
  return std::atoi(found.data() + found_dot + 1) >= std::atoi(wanted.data() + wanted_dot + 1);
}

void require_gpu(const std::string& path, const std::string& capability)
{
  if (!has_cuda()) {
    refuse(path,
           "expected an artifact for device \"cpu\", which is all this build runs, found \"cuda\"; re-export with {} "
           "--device cpu, or build with -DTESSERA_CUDA=ON",
           kExport);
  }
  if (num_gpus() == 0) {
    refuse(path,
           "expected a CUDA device of compute capability {} for this artifact (device \"cuda\"), found no device; run "
           "where nvidia-smi lists one and CUDA_VISIBLE_DEVICES does not hide it, or re-export with {} --device cpu",
           capability, kExport);
  }
  for (int device = 0; device < num_gpus(); ++device) {
    const auto found = gpu_capability(device);
    if (!runs_on(capability, found)) {
      refuse(path,
             "expected an artifact for compute capability {} (device {}, {}), found one for {}; re-export it on this "
             "machine with {} --device cuda",
             found, device, gpu_name(device), capability, kExport);
    }
  }
}

void check(const std::string& path, const Passport& passport)
{
  require_this_torch(path, passport.torch_version);
  if (passport.device == "cuda") {
    require_gpu(path, passport.device_capability);
  } else if (passport.device != "cpu") {
    refuse(path, "expected device \"cpu\" or \"cuda\", found \"{}\"; re-export with {} --device cpu", passport.device,
           kExport);
  } else if (!has_instructions(passport.device_capability)) {
    refuse(path,
           "expected an artifact for this processor, found one that needs {} instructions, which it lacks; re-export "
           "it here with {}",
           passport.device_capability, kExport);
  }
  if (passport.dtype != "float32" && passport.dtype != "float64") {
    refuse(path, "expected dtype \"float32\" or \"float64\", found \"{}\"; re-export with {} --dtype float32",
           passport.dtype, kExport);
  }
  if (passport.matmul != "highest" && passport.matmul != "tf32" && passport.matmul != "tf32x3") {
    refuse(path,
           "expected matmul \"highest\", \"tf32\" or \"tf32x3\", found \"{}\"; re-export with {} --matmul highest",
           passport.matmul, kExport);
  }
  if (passport.matmul != "highest" && passport.device != "cuda") {
    refuse(path, "expected matmul \"highest\" for device \"{}\", found \"{}\"; re-export with {} --matmul highest",
           passport.device, passport.matmul, kExport);
  }
  const auto& cutoffs = passport.cutoffs;
  if (cutoffs.empty() || cutoffs.front() <= 0 || !std::is_sorted(cutoffs.begin(), cutoffs.end())) {
    refuse(path,
           "expected positive, ascending cutoffs, found {} of them out of order or not positive; re-export with {}",
           cutoffs.size(), kExport);
  }
  if (passport.elements.empty()) refuse(path, "expected at least one element, found none; re-export with {}", kExport);
  if (passport.reference_energies.size() != passport.elements.size()) {
    refuse(path, "expected {} reference energies, one an element, found {}; re-export with {}",
           passport.elements.size(), passport.reference_energies.size(), kExport);
  }
}

}  // namespace

std::unique_lock<std::mutex> lock_package_reader()
{
  static std::mutex mutex;
  return std::unique_lock(mutex);
}

double MemoryModel::predict(std::int64_t rows, std::span<const std::int64_t> halo_rows,
                            std::span<const std::int64_t> edges) const
{
  TESSERA_REQUIRE(halo_rows.size() == bytes_per_halo_row.size() && edges.size() == bytes_per_edge.size(),
                  "memory of a model of {} lists: expected as many counts of halo rows and edges, found {} and {}",
                  bytes_per_edge.size(), halo_rows.size(), edges.size());
  double total = bytes + bytes_per_row * static_cast<double>(rows);
  for (std::size_t l = 0; l < edges.size(); ++l) {
    total +=
        bytes_per_halo_row[l] * static_cast<double>(halo_rows[l]) + bytes_per_edge[l] * static_cast<double>(edges[l]);
  }
  return total;
}

double Passport::largest_cutoff() const { return *std::max_element(cutoffs.begin(), cutoffs.end()); }

Passport read_passport(const std::string& path)
{
  require_whole_zip(path);
  Passport passport;
  passport.json = stored_json(path);
  Json json;
  try {
    json = parse_json(passport.json);
  } catch (const Error& error) {
    refuse(path, "expected a passport in JSON: {}; re-export with {}", error.what(), kExport);
  }
  const Fields fields(path, json);
  passport.format = fields.integer("format");
  if (passport.format != kFormat) {
    refuse(path, "expected artifact format {}, found {}; re-export with the tessera-export of this version ({})",
           kFormat, passport.format, kExport);
  }
  passport.torch_version = fields.text("torch_version");
  passport.device = fields.text("device");
  passport.device_capability = fields.text("device_capability");
  passport.dtype = fields.text("dtype");
  passport.matmul = fields.text("matmul");
  passport.tessera_version = fields.text("tessera_version");
  passport.weights_sha256 = fields.text("weights_sha256");
  passport.elements = fields.texts("elements");
  passport.reference_energies = fields.numbers("reference_energies");
  passport.cutoffs = fields.numbers("cutoffs");
  passport.uses_charge = fields.flag("uses_charge");
  passport.charge_range = fields.range("charge_range");
  passport.multiplicity_range = fields.range("multiplicity_range");
  passport.num_layers = fields.integer("num_layers");
  passport.num_messages = fields.integer("num_messages");
  passport.receptive_radius = fields.number("receptive_radius");
  passport.recompute = fields.texts("recompute");
  for (const char* key : {"stages", "energy_unit", "length_unit", "channels", "model_config"}) {
    (void)fields.at(key);  // read from `json` by those who want them, but promised by the format
  }
  const auto memory = fields.inside("memory");
  check(path, passport);
  passport.memory = read_memory(memory, passport.cutoffs.size());
  if (fields.optional("largest_step") != nullptr) {
    passport.largest_step = read_largest_step(path, fields.inside("largest_step"), passport.cutoffs.size());
  }
  return passport;
}

}  // namespace tessera
