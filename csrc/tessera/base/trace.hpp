// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tessera {

/// Wall time by named phase, summed over a run.
///
/// A phase that runs inside another counts in both. Not for use by several threads at once.
class Trace {
  struct Phase {
    double seconds = 0;
    std::int64_t visits = 0;
  };
  using Clock = std::chrono::steady_clock;

 public:
  /// Measures from its making to its end of scope, also when left by an exception.
  class Span {
   public:
    explicit Span(Phase& phase) noexcept : phase_(phase), start_(Clock::now()) {}
    ~Span()
    {
      phase_.seconds += std::chrono::duration<double>(Clock::now() - start_).count();
      ++phase_.visits;
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Phase& phase_;
    Clock::time_point start_;
  };

  [[nodiscard]] Span span(std::string_view phase) { return Span(phases_[std::string(phase)]); }

  /// Seconds spent in a phase, 0 for one never entered.
  [[nodiscard]] double seconds(std::string_view phase) const
  {
    const auto found = phases_.find(phase);
    return found == phases_.end() ? 0 : found->second.seconds;
  }

  /// How often a phase was left.
  [[nodiscard]] std::int64_t visits(std::string_view phase) const
  {
    const auto found = phases_.find(phase);
    return found == phases_.end() ? 0 : found->second.visits;
  }

  [[nodiscard]] const auto& phases() const noexcept { return phases_; }

 private:
  std::map<std::string, Phase, std::less<>> phases_;  // nodes stay in place, so spans may refer to them
};

}  // namespace tessera
