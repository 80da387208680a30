// SPDX-License-Identifier: MIT
#include "tessera/model/operator_support.hpp"

#include <sstream>

#include "tessera/base/error.hpp"

namespace tessera::operators {
namespace {

thread_local std::string last_error;
thread_local at::Device current_device = at::kCPU;

std::string describe(const at::Tensor& tensor)
{
  std::ostringstream out;
  out << c10::toString(tensor.scalar_type()) << " " << tensor.sizes() << " on " << tensor.device()
      << (tensor.is_contiguous() ? "" : ", not contiguous");
  return out.str();
}

std::string describe(std::initializer_list<std::int64_t> extents)
{
  std::ostringstream out;
  const char* separator = "[";
  for (const auto extent : extents) {
    out << separator;
    extent == kAny ? out << "any" : out << extent;
    separator = ", ";
  }
  out << "]";
  return out.str();
}

bool has_extents(const at::Tensor& tensor, std::initializer_list<std::int64_t> extents)
{
  return tensor.dim() == static_cast<std::int64_t>(extents.size()) &&
         std::equal(extents.begin(), extents.end(), tensor.sizes().begin(),
                    [](auto expected, auto found) { return expected == kAny || expected == found; });
}

}  // namespace

at::Device operator_device() noexcept { return current_device; }

DeviceScope::DeviceScope(const at::Tensor& first) : before_(current_device), guard_(first.device())
{
  current_device = first.device();
}

DeviceScope::~DeviceScope() { current_device = before_; }

void require(const char* op, const char* name, const at::Tensor& tensor, at::ScalarType type,
             std::initializer_list<std::int64_t> extents)
{
  require_on(operator_device(), op, name, tensor, type, extents);
}

void require_on(at::Device device, const char* op, const char* name, const at::Tensor& tensor, at::ScalarType type,
                std::initializer_list<std::int64_t> extents)
{
  TESSERA_REQUIRE(tensor.scalar_type() == type && has_extents(tensor, extents) && tensor.is_contiguous() &&
                      tensor.device() == device,
                  "tessera::{}: {} must be a contiguous {} {} on {}, found {}; call .contiguous() or .to() first", op,
                  name, c10::toString(type), describe(extents), device.str(), describe(tensor));
}

at::ScalarType require_floating(const char* op, const char* name, const at::Tensor& tensor,
                                std::initializer_list<std::int64_t> extents)
{
  const auto type = tensor.scalar_type();
  TESSERA_REQUIRE(type == at::kFloat || type == at::kDouble,
                  "tessera::{}: {} must be float32 or float64, found {}; call .to() first", op, name, describe(tensor));
  require(op, name, tensor, type, extents);
  return type;
}

void remember_error(const char* text) noexcept
{
  try {
    last_error = text;
  } catch (...) {
    last_error.clear();
  }
}

std::string take_error() noexcept { return std::exchange(last_error, {}); }

}  // namespace tessera::operators
