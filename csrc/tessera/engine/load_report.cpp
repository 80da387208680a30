// SPDX-License-Identifier: MIT
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/engine/engine.hpp"

namespace tessera {

namespace {

constexpr std::array<const char*, kNumRebuildCauses> kCauseNames{"none",     "first step", "forced", "displacement",
                                                                 "interval", "migration",  "re-cut"};

struct Row {
  const char* name;
  double value;
};

std::string number(double value)
{
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value == static_cast<double>(static_cast<long long>(value)) ? "%.0f" : "%.3f",
                value);
  return text.data();
}

/// One line of the table.
std::string line(const char* name, const std::string& least, const std::string& mean, const std::string& most)
{
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "Tessera: %-26s %13s %13s %13s\n", name, least.c_str(), mean.c_str(),
                most.c_str());
  return text.data();
}

}  // namespace

std::int64_t EngineReport::num_rebuilds() const
{
  std::int64_t sum = 0;
  for (const std::int64_t count : rebuilds) sum += count;
  return sum;
}

std::string describe_load(const EngineReport& before, const EngineReport& now, Communicator& communicator)
{
  const auto steps = now.steps - before.steps;
  if (steps == 0) return {};
  const double per_step = 1.0 / static_cast<double>(steps);
  const double to_ms = 1e3 * per_step;
  const auto mean = [&](std::int64_t a, std::int64_t b) { return static_cast<double>(b - a) * per_step; };
  const double reshard = now.reshard_seconds - before.reshard_seconds;
  const double search = now.search_seconds - before.search_seconds;
  const double wait = now.wait_seconds - before.wait_seconds;
  const double model = now.model_seconds - before.model_seconds;
  const double total = now.total_seconds - before.total_seconds;
  std::vector<Row> rows{
      {"owned atoms", static_cast<double>(now.num_owned)},
      {"halo atoms", static_cast<double>(now.num_halo)},
      {"edges", static_cast<double>(now.num_edges)},
      {"peers", static_cast<double>(now.num_peers)},
      {"feature messages a step", mean(before.messages, now.messages)},
      {"feature bytes a step", mean(before.bytes, now.bytes)},
      {"position messages a step", mean(before.position_messages, now.position_messages)},
      {"reshard ms a step", reshard * to_ms},
      {"search ms a step", search * to_ms},
      {"exchange wait ms a step", wait * to_ms},
      {"model ms a step", model * to_ms},
      {"other ms a step", (total - reshard - search - wait - model) * to_ms},
      {"total ms a step", total * to_ms},
  };
  if (now.device_bytes > 0) {
    rows.push_back({"graphs recorded", static_cast<double>(now.captures - before.captures)});
    rows.push_back({"repeated steps", static_cast<double>(now.repeated_steps - before.repeated_steps)});
    rows.push_back({"foreseen MiB of the model", static_cast<double>(now.foreseen_bytes >> 20)});
    rows.push_back({"peak MiB of the model", static_cast<double>(now.peak_bytes >> 20)});
    rows.push_back({"MiB of the GPU", static_cast<double>(now.device_bytes >> 20)});
  }
  std::vector<double> least, most, sum;
  for (const Row& row : rows) least.push_back(row.value);
  most = sum = least;
  communicator.all_reduce(least, Reduction::min);
  communicator.all_reduce(most, Reduction::max);
  communicator.all_reduce(sum, Reduction::sum);

  std::string text = format("Tessera: {} steps on {} rank(s), {} rebuilds", steps, communicator.num_ranks(),
                            now.num_rebuilds() - before.num_rebuilds());
  const char* separator = " (";
  for (std::size_t cause = 1; cause < now.rebuilds.size(); ++cause) {
    const auto count = now.rebuilds[cause] - before.rebuilds[cause];
    if (count == 0) continue;
    text += format("{}{} {}", separator, kCauseNames[cause], count);
    separator = ", ";
  }
  text += format("{}, {} cuts\n", *separator == ',' ? ")" : "", now.cuts - before.cuts);
  text += line("of each rank", "min", "avg", "max");
  for (std::size_t k = 0; k < rows.size(); ++k) {
    text += line(rows[k].name, number(least[k]), number(sum[k] / communicator.num_ranks()), number(most[k]));
  }
  return text;
}

}  // namespace tessera
