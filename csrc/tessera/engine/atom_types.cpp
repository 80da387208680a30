// SPDX-License-Identifier: MIT
#include "tessera/engine/atom_types.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "tessera/base/error.hpp"
#include "tessera/engine/option_names.hpp"
#include "tessera/model/atomic_weights.hpp"

namespace tessera {

namespace {

constexpr double kMassTolerance = 0.1;  // u; data files round, but no two neighbouring elements are this close

/// The spelling of chemistry: first letter capital, the rest small.
std::string as_symbol(std::string text)
{
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto letter = static_cast<unsigned char>(text[i]);
    text[i] = static_cast<char>(i == 0 ? std::toupper(letter) : std::tolower(letter));
  }
  return text;
}

std::int32_t find_element(const std::string& symbol, int type, const std::vector<std::string>& elements)
{
  const auto found = std::find(elements.begin(), elements.end(), symbol);
  if (found != elements.end()) return static_cast<std::int32_t>(found - elements.begin());
  const bool is_misspelt = std::find(elements.begin(), elements.end(), as_symbol(symbol)) != elements.end();
  fail(Reach::collective, "expected one of the model's elements ({}) or NULL for atom type {}, found '{}'; {}",
       listed(elements), type, symbol,
       is_misspelt ? "did you mean '" + as_symbol(symbol) + "'?"
                   : "correct the element or use a model that was exported with it");
}

}  // namespace

std::vector<std::int32_t> map_types(const std::vector<std::string>& symbols, int num_types, const Passport& passport)
{
  if (static_cast<int>(symbols.size()) != num_types) {
    fail(Reach::collective,
         "expected one element or NULL for each of the {} atom types, found {} ({}); the model has {}", num_types,
         symbols.size(), symbols.empty() ? "none" : listed(symbols), listed(passport.elements));
  }
  std::vector<std::int32_t> element_of_type(num_types + 1, -1);
  for (int type = 1; type <= num_types; ++type) {
    if (symbols[type - 1] != "NULL") element_of_type[type] = find_element(symbols[type - 1], type, passport.elements);
  }
  return element_of_type;
}

std::string contradicting_masses(const std::vector<std::int32_t>& element_of_type,
                                 const std::vector<std::string>& elements, std::span<const int> types,
                                 std::span<const double> masses, Communicator& communicator)
{
  // Of each type over all ranks; with masses per type the two are equal. Not positive: no atom, or no mass yet.
  std::vector<double> lightest(element_of_type.size(), std::numeric_limits<double>::infinity());
  std::vector<double> heaviest(element_of_type.size(), -std::numeric_limits<double>::infinity());
  for (std::size_t i = 0; i < types.size(); ++i) {
    lightest[types[i]] = std::min(lightest[types[i]], masses[i]);
    heaviest[types[i]] = std::max(heaviest[types[i]], masses[i]);
  }
  communicator.all_reduce(lightest, Reduction::min);
  communicator.all_reduce(heaviest, Reduction::max);
  std::string lines;
  for (std::size_t type = 1; type < element_of_type.size(); ++type) {
    const std::int32_t element = element_of_type[type];
    if (element < 0 || heaviest[type] <= 0) continue;
    const double weight = atomic_weight(elements[element]);
    const double found = weight - lightest[type] > heaviest[type] - weight ? lightest[type] : heaviest[type];
    if (weight > 0 && std::abs(found - weight) > kMassTolerance) {
      lines += format("\n  type {} is mapped to {} (expected {} u), but has mass {} u", type, elements[element], weight,
                      found);
    }
  }
  return lines;
}

std::string describe_model(const std::string& path, const Passport& passport,
                           const std::vector<std::int32_t>& element_of_type, const EngineOptions& options)
{
  std::vector<std::string> types, cutoffs;
  for (std::size_t type = 1; type < element_of_type.size(); ++type) {
    const std::int32_t element = element_of_type[type];
    types.push_back(format("{}={}", type, element < 0 ? "NULL" : passport.elements[element]));
  }
  for (const double cutoff : passport.cutoffs) cutoffs.push_back(format("{}", cutoff));
  return format(
      "Tessera {}: model {} ({}, {}), atom types {}\n"
      "Tessera: cutoffs {} A, receptive radius {} A, skin {} A, {}\n",
      passport.tessera_version, path, passport.dtype, passport.device, listed(types), listed(cutoffs),
      passport.receptive_radius, options.skin,
      options.rebuild > 0 ? format("rebuild at least every {} steps", options.rebuild)
                          : std::string("rebuild when an atom has moved half of it"));
}

PairCoefficients parse_pair_coefficients(const std::vector<std::string>& words)
{
  if (words.size() < 2 || words[0] != "*" || words[1] != "*") {
    fail(Reach::collective,
         "pair_coeff: expected `pair_coeff * * model.pt2 <element of each atom type>`, found `{} {}` instead of `* *`; "
         "one model serves all types, and NULL leaves a type out",
         words.empty() ? "" : words[0], words.size() < 2 ? "" : words[1]);
  }
  if (words.size() < 3) {
    fail(Reach::collective,
         "pair_coeff: expected a model file after `* *`, found the end of the line; `tessera-export` writes it");
  }
  return {words[2], {words.begin() + 3, words.end()}};
}

void require_all_pairs(const std::vector<std::int32_t>& element_of_type, const std::vector<bool>& is_mine)
{
  for (std::size_t i = 1; i < element_of_type.size(); ++i) {
    for (std::size_t j = i; j < element_of_type.size(); ++j) {
      if (element_of_type[i] < 0 || element_of_type[j] < 0 || is_mine[i * element_of_type.size() + j]) continue;
      fail(Reach::collective,
           "hybrid: expected all pairs of types with an element, found types {} and {} given to another style; a model "
           "of many bodies cannot leave a pair out: use hybrid/overlay, or NULL for a type",
           i, j);
    }
  }
}

}  // namespace tessera
