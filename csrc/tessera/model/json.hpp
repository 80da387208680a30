// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera {

/// One value of a JSON text (RFC 8259); numbers are doubles.
///
/// A reader of a hundred lines, because libtorch ships none and a passport is one small object.
struct Json {
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;
  std::variant<std::nullptr_t, bool, double, std::string, Array, Object> value = nullptr;

  /// "null", "boolean", "number", "string", "array" or "object", for error texts.
  [[nodiscard]] const char* kind() const;
};

/// @throws Error(rank) with the position and what was expected there; nothing may follow the value.
[[nodiscard]] Json parse_json(std::string_view text);

}  // namespace tessera
