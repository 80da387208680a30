// SPDX-License-Identifier: MIT
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

/// Who knows of a failure: every rank at the same point of the program, or one rank alone.
///
/// The difference decides how the run ends: a collective error may be reported by an orderly
/// collective exit, a rank error must abort the others, which may be waiting in an exchange.
enum class Reach { collective, rank };

/// Every failure that Tessera reports; the text names what was expected, what was found and what to do.
class Error : public std::runtime_error {
 public:
  Error(Reach reach, const std::string& text) : std::runtime_error(text), reach_(reach) {}
  [[nodiscard]] Reach reach() const noexcept { return reach_; }

 private:
  Reach reach_;
};

namespace detail {

inline void format_into(std::ostringstream& out, std::string_view pattern) { out << pattern; }

template <typename First, typename... Rest>
void format_into(std::ostringstream& out, std::string_view pattern, const First& first, const Rest&... rest)
{
  const auto hole = pattern.find("{}");
  if (hole == std::string_view::npos) {
    out << pattern;
    return;
  }
  out << pattern.substr(0, hole) << first;
  format_into(out, pattern.substr(hole + 2), rest...);
}

}  // namespace detail

/// Text with each `{}` replaced by the next argument (gcc 12 has no std::format).
template <typename... Args>
[[nodiscard]] std::string format(std::string_view pattern, const Args&... args)
{
  std::ostringstream out;
  out.precision(10);
  detail::format_into(out, pattern, args...);
  return out.str();
}

template <typename... Args>
[[noreturn]] void fail(Reach reach, std::string_view pattern, const Args&... args)
{
  throw Error(reach, format(pattern, args...));
}

}  // namespace tessera

/// Checks a condition that a caller can break; failing it is an error of this rank alone.
#define TESSERA_REQUIRE(condition, ...)                                     \
  do {                                                                      \
    if (!(condition)) ::tessera::fail(::tessera::Reach::rank, __VA_ARGS__); \
  } while (false)
