// SPDX-License-Identifier: MIT
#include "tessera/engine/run_options.hpp"

#include <cmath>

#include "tessera/base/error.hpp"
#include "tessera/engine/option_names.hpp"

namespace tessera {

namespace {

constexpr double kLargest = 1e9;  // far beyond any charge, and exact in a double

void set(RunOptions& options, const std::string& keyword, const std::string& text)
{
  for (StepInteger* integer : {&options.charge, &options.multiplicity}) {
    if (integer->keyword != keyword) continue;
    integer->set(text);
    return;
  }
  if (set_option(options.engine, keyword, text)) return;
  std::vector<std::string> known = option_names();
  known.insert(known.end() - 1, {"charge", "multiplicity"});
  fail(Reach::collective, "expected one of the keywords {}; found '{}'", listed(known), keyword);
}

}  // namespace

void StepInteger::set(std::string_view text)
{
  number = parse_integer(text);
  variable = text.starts_with("v_") ? text.substr(2) : "";
  if (!number && variable.empty()) {
    fail(Reach::collective, "expected {} as an integer or as a variable v_name, found {}", keyword, text);
  }
}

void StepInteger::check(const std::array<long, 2>& range) const
{
  if (!number || (*number >= range[0] && *number <= range[1])) return;
  fail(Reach::collective, "expected {} between {} and {} (the model's range), found {}", keyword, range[0], range[1],
       *number);
}

long StepInteger::from_variable(double value) const
{
  if (value != std::floor(value) || std::abs(value) > kLargest) {
    fail(Reach::collective, "{} v_{}: expected an integer, found {}", keyword, variable, value);
  }
  return static_cast<long>(value);
}

RunOptions read_run_options(const std::vector<std::string>& words)
{
  RunOptions options;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    if (i + 1 == words.size()) {
      fail(Reach::collective, "expected a value after keyword '{}', found the end of the line", words[i]);
    }
    set(options, words[i], words[i + 1]);
  }
  return options;
}

std::array<double, 4> values_of(const StepResult& result, const EngineReport& report, double scale)
{
  return {scale * (result.energy - result.reference_energy), static_cast<double>(report.num_rebuilds()),
          static_cast<double>(report.cuts), static_cast<double>(report.num_edges)};
}

void refuse_other_weights(const std::string& file, const std::string& expected, const std::string& found)
{
  fail(
      Reach::collective,
      "{}: expected the model that the restart file was written with (weights {}), found another one (weights {}); put "
      "the former back, or name the model with pair_coeff after read_restart",
      file, expected, found);
}

void refuse_units(std::string_view units)
{
  fail(Reach::collective,
       "expected units metal (eV, ps) or real (kcal/mol, fs), found units {}; put `units metal` or `units real` at the "
       "top "
       "of the input",
       units);
}

}  // namespace tessera
