// SPDX-License-Identifier: MIT
#include "tessera/engine/option_names.hpp"

#include "tessera/base/error.hpp"

namespace tessera {

CurveKind parse_curve(std::string_view name)
{
  if (name == "hilbert") return CurveKind::hilbert;
  if (name == "morton") return CurveKind::morton;
  fail(Reach::collective, "curve: expected hilbert or morton, found '{}'", name);
}

Balance parse_balance(std::string_view name)
{
  if (name == "atoms") return Balance::atoms;
  if (name == "edges") return Balance::edges;
  fail(Reach::collective, "balance: expected atoms or edges, found '{}'", name);
}

ExchangeRoute parse_exchange(std::string_view name)
{
  if (name == "auto") return ExchangeRoute::automatic;
  if (name == "nccl") return ExchangeRoute::nccl;
  if (name == "staged") return ExchangeRoute::staged;
  if (name == "messages") return ExchangeRoute::messages;
  fail(Reach::collective, "exchange: expected auto, nccl, staged or messages, found '{}'", name);
}

GraphUse parse_graph_use(std::string_view name)
{
  if (name == "on") return GraphUse::on;
  if (name == "off") return GraphUse::off;
  if (name == "check") return GraphUse::check;
  fail(Reach::collective, "graph: expected on, off or check, found '{}'", name);
}

bool parse_yes_no(std::string_view option, std::string_view name)
{
  if (name == "yes") return true;
  if (name == "no") return false;
  fail(Reach::collective, "{}: expected yes or no, found '{}'", option, name);
}

}  // namespace tessera
