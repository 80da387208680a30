// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/box.hpp"

namespace tessera::testing {

/// A named system that some neighbour search or domain decomposition has got wrong before.
struct HardSystem {
  std::string name;
  std::vector<Vec3> positions;  ///< Å
  Box box;
  double cutoff = 0;  ///< Å
};

inline std::ostream& operator<<(std::ostream& out, const HardSystem& system) { return out << system.name; }

constexpr std::array<bool, 3> kPeriodic{true, true, true};
constexpr double kWaterDensity = 0.1;  // atoms/Å^3

inline Box cube(double edge, const std::array<bool, 3>& periodic = kPeriodic)
{
  return Box({Vec3{edge, 0, 0}, Vec3{0, edge, 0}, Vec3{0, 0, edge}}, {0, 0, 0}, periodic);
}

/// Independent uniform positions inside the box.
inline std::vector<Vec3> scatter_atoms(std::int64_t count, const Box& box, unsigned seed)
{
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<Vec3> positions;
  for (std::int64_t n = 0; n < count; ++n) {
    positions.push_back(box.to_cartesian({uniform(random), uniform(random), uniform(random)}));
  }
  return positions;
}

inline HardSystem scattered(std::string name, std::int64_t count, const Box& box, double cutoff, unsigned seed)
{
  return {std::move(name), scatter_atoms(count, box, seed), box, cutoff};
}

/// Moves each atom by whole cells, up to `cells` either way along the periodic axes.
inline HardSystem unwrapped(HardSystem system, int cells, unsigned seed)
{
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int> turns(-cells, cells);
  for (Vec3& r : system.positions) {
    Shift shift{};
    for (int k = 0; k < 3; ++k) shift[k] = system.box.periodic()[k] ? turns(random) : 0;
    r = r + system.box.translation(shift);
  }
  system.name += "_unwrapped_by_" + std::to_string(cells) + "_cells";
  return system;
}

/// Atoms on a cubic lattice that touches the faces of the box; many pairs lie exactly at the cutoff.
inline HardSystem atoms_on_faces(int cells, double spacing)
{
  HardSystem system{"atoms_on_faces", {}, cube(cells * spacing), 2 * spacing};
  for (int x = 0; x < cells; ++x) {
    for (int y = 0; y < cells; ++y) {
      for (int z = 0; z < cells; ++z) {
        // Either face of a periodic axis is the same place.
        const double upper = (x + y + z) % 2 == 0 ? 0 : cells * spacing;
        system.positions.push_back({x == 0 ? upper : x * spacing, y * spacing, z * spacing});
      }
    }
  }
  return system;
}

inline HardSystem droplet(std::string name, double box_edge, const std::array<bool, 3>& periodic)
{
  const Box box = cube(box_edge, periodic);
  HardSystem system{std::move(name), scatter_atoms(150, cube(11), 5), box, 4.0};
  const double middle = box_edge / 2;
  for (Vec3& r : system.positions) r = r + Vec3{middle, middle, middle};
  return system;
}

inline HardSystem slab_with_runaways()
{
  HardSystem system = scattered("slab_ppf_with_atoms_far_outside", 150, cube(11, {true, true, false}), 4.0, 6);
  system.positions.push_back({5, 5, 1e9});
  system.positions.push_back({5, 5.5, 1e9});
  system.positions.push_back({-3, 40, -2e14});
  return system;
}

inline HardSystem all_atoms_in_one_corner()
{
  HardSystem system = scattered("all_atoms_in_one_corner", 120, cube(9), 3.5, 7);
  system.box = cube(60);
  return system;
}

inline HardSystem coincident_atoms() { return {"coincident_atoms", {{1, 1, 1}, {1, 1, 1}, {3, 1, 1}}, cube(10), 2.5}; }

/// Every hard system, small enough for an O(N^2) oracle.
inline std::vector<HardSystem> hard_systems()
{
  const Box tilted({Vec3{13, 0, 0}, Vec3{5.9, 12, 0}, Vec3{-5.1, 4.8, 11}}, {-3, 2, 40}, kPeriodic);
  const Box strongly_tilted({Vec3{12, 0, 0}, Vec3{50, 12, 0}, Vec3{-37, 61, 12}}, {0, 0, 0}, kPeriodic);
  const Box left_handed({Vec3{0, 9, 1}, Vec3{10, 0, 0}, Vec3{0, 2, 8}}, {1, 1, 1}, kPeriodic);
  const Box rod({Vec3{2.5, 0, 0}, Vec3{0, 40, 0}, Vec3{0, 0, 3}}, {0, 0, 0}, kPeriodic);
  const Box tilted_slab({Vec3{11, 0, 0}, Vec3{4, 11, 0}, Vec3{7, 5, 11}}, {0, 0, 0}, {true, false, true});
  return {
      {"no_atoms", {}, cube(10), 4.0},
      {"one_atom", {{3, 3, 3}}, cube(40), 6.0},
      {"one_atom_in_a_cell_smaller_than_the_cutoff", {{-7, 3, 30}}, cube(3), 6.0},
      coincident_atoms(),
      scattered("water_density", 170, cube(12), 4.0, 1),
      scattered("cell_smaller_than_the_cutoff", 8, cube(4.3), 6.0, 2),
      scattered("cell_between_one_and_two_cutoffs", 80, cube(9.3), 5.0, 3),
      scattered("tilted", 170, tilted, 4.0, 4),
      scattered("strongly_tilted", 170, strongly_tilted, 4.0, 8),
      scattered("left_handed_cell", 70, left_handed, 4.0, 9),
      scattered("rod_thinner_than_the_cutoff", 30, rod, 5.0, 10),
      scattered("tilted_slab", 130, tilted_slab, 4.0, 11),
      scattered("five_atoms", 5, cube(9), 5.0, 12),
      unwrapped(scattered("tilted", 120, tilted, 4.0, 13), 3, 14),
      unwrapped(scattered("water_density", 120, cube(11), 4.0, 15), 100000, 16),
      unwrapped(scattered("cell_smaller_than_the_cutoff", 6, cube(4), 6.0, 17), 1000, 18),
      atoms_on_faces(4, 2.0),
      unwrapped(atoms_on_faces(4, 2.1), 10000000, 19),  // rounding decides which pairs lie at the cutoff
      droplet("droplet_in_a_huge_open_box", 2e6, {false, false, false}),
      droplet("droplet_in_a_huge_periodic_box", 2e6, kPeriodic),
      slab_with_runaways(),
      all_atoms_in_one_corner(),
  };
}

}  // namespace tessera::testing
