// SPDX-License-Identifier: MIT
#include "tessera/engine/option_names.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/search/pair_search.hpp"

namespace tessera {

namespace {

/// The number that `text` spells, in all of it; none otherwise.
template <typename Number>
std::optional<Number> parse_number(std::string_view text)
{
  if (text.starts_with('+')) text.remove_prefix(1);
  Number number{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

template <typename Integer>
Integer natural(std::string_view keyword, std::string_view text)
{
  const auto number = parse_number<Integer>(text);
  if (!number || *number < 0) fail(Reach::collective, "expected {} >= 0, found {}", keyword, text);
  return *number;
}

/// The value of the choice called `text`.
template <typename Value>
Value choose(std::string_view keyword, std::string_view text,
             std::initializer_list<std::pair<std::string_view, Value>> choices)
{
  std::string names;
  std::size_t left = choices.size();
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    --left;
    names += format("{}{}", name, left > 1 ? ", " : left == 1 ? " or " : "");
  }
  fail(Reach::collective, "{}: expected {}, found '{}'", keyword, names, text);
}

void set_skin(EngineOptions& options, std::string_view keyword, std::string_view text)
{
  const auto skin = parse_number<double>(text);
  if (!skin || !std::isfinite(*skin) || *skin < 0) {
    fail(Reach::collective, "expected {} >= 0 (Angstrom), found {}", keyword, text);
  }
  options.skin = *skin;
}

void set_rebuild(EngineOptions& options, std::string_view keyword, std::string_view text)
{
  options.rebuild = natural<std::int64_t>(keyword, text);
}

void set_recut(EngineOptions& options, std::string_view keyword, std::string_view text)
{
  options.recut = natural<std::int64_t>(keyword, text);
}

void set_curve(EngineOptions& options, std::string_view keyword, std::string_view text)
{
  options.curve = choose<CurveKind>(keyword, text, {{"hilbert", CurveKind::hilbert}, {"morton", CurveKind::morton}});
}

void set_balance(EngineOptions& options, std::string_view keyword, std::string_view text)
{
  options.balance = choose<Balance>(keyword, text, {{"atoms", Balance::atoms}, {"edges", Balance::edges}});
}

void set_peers(EngineOptions& options, std::string_view /*keyword*/, std::string_view text)
{
  options.peers = parse_peer_scheme(text);
}

void set_search(EngineOptions& options, std::string_view /*keyword*/, std::string_view text)
{
  (void)make_pair_search(text);  // refuses an unknown one now
  options.search = text;
}

void set_order(EngineOptions& options, std::string_view keyword, std::string_view text)
{
  options.edge_order = choose<SenderOrder>(
      keyword, text, {{"scattered", SenderOrder::scattered}, {"ascending", SenderOrder::ascending}});
}

void set_overlap(EngineOptions& options, std::string_view keyword, std::string_view text)
{
  options.overlap = choose<bool>(keyword, text, {{"yes", true}, {"no", false}});
}

void set_exchange(EngineOptions& options, std::string_view keyword, std::string_view text)
{
  options.exchange = choose<ExchangeRoute>(keyword, text,
                                           {{"auto", ExchangeRoute::automatic},
                                            {"nccl", ExchangeRoute::nccl},
                                            {"staged", ExchangeRoute::staged},
                                            {"messages", ExchangeRoute::messages}});
}

void set_graph(EngineOptions& options, std::string_view keyword, std::string_view text)
{
  options.graph =
      choose<GraphUse>(keyword, text, {{"on", GraphUse::on}, {"off", GraphUse::off}, {"check", GraphUse::check}});
}

void set_threads(EngineOptions& options, std::string_view keyword, std::string_view text)
{
  options.num_threads = natural<int>(keyword, text);
}

struct Option {
  std::string_view name;
  void (*set)(EngineOptions& options, std::string_view keyword, std::string_view text);
};

constexpr std::array kOptions{
    Option{"skin", set_skin},         Option{"rebuild", set_rebuild}, Option{"recut", set_recut},
    Option{"curve", set_curve},       Option{"balance", set_balance}, Option{"peers", set_peers},
    Option{"search", set_search},     Option{"order", set_order},     Option{"overlap", set_overlap},
    Option{"exchange", set_exchange}, Option{"graph", set_graph},     Option{"threads", set_threads},
};

}  // namespace

std::vector<std::string> option_names()
{
  std::vector<std::string> names;
  for (const Option& option : kOptions) names.emplace_back(option.name);
  return names;
}

bool set_option(EngineOptions& options, std::string_view keyword, std::string_view text)
{
  for (const Option& option : kOptions) {
    if (option.name != keyword) continue;
    option.set(options, keyword, text);
    return true;
  }
  return false;
}

std::optional<long> parse_integer(std::string_view text) { return parse_number<long>(text); }

std::string listed(const std::vector<std::string>& items)
{
  std::string text;
  for (const std::string& item : items) text += text.empty() ? item : ", " + item;
  return text;
}

}  // namespace tessera
