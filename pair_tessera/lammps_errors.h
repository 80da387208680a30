// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "comm.h"
#include "error.h"
#include "exceptions.h"
#include "lammps.h"
#include "tessera/base/error.hpp"
#include "tessera/base/last_words.hpp"

namespace LAMMPS_NS {

/// Runs `body`; the one place where Tessera's errors become LAMMPS's.
///
/// A collective error, which every rank throws at the same point, ends the run in order (`error->all`). Any other is
/// known to this rank alone: it aborts all (`error->one`), for the others may be waiting in an exchange.
template <typename Body>
void guard(LAMMPS* lmp, Body&& body)
{
  std::string text;
  bool is_collective = false;
  try {
    body();
    return;
  } catch (const LAMMPSException&) {
    throw;  // LAMMPS's own, already reported
  } catch (const tessera::Error& problem) {
    text = std::string("pair_style tessera: ") + problem.what();
    is_collective = problem.reach() == tessera::Reach::collective;
  } catch (const std::bad_alloc&) {
    text =
        "pair_style tessera: expected memory for the atoms, pairs and features of this rank, found none left; use more "
        "ranks, a smaller skin, or a model with narrower channels";
  } catch (const std::exception& problem) {
    text = std::string("pair_style tessera: unexpected failure: ") + problem.what();
  }
  if (is_collective) lmp->error->all(FLERR, text);
  if (!lmp->screen) {  // LAMMPS gives its screen to rank 0 alone, and this rank's reason must not be lost
    std::fprintf(stderr, "ERROR on proc %d: %s\n", lmp->comm->me, text.c_str());
  }
  try {
    lmp->error->one(FLERR, text);
  } catch (const LAMMPSException&) {  // said by now; the program lmp calls MPI_Abort when it catches it
    tessera::let_last_words_arrive();
    throw;
  }
}

/// Ends the run unless `condition` holds; every rank must see the same value (input text, global settings).
template <typename... Args>
void require(bool condition, std::string_view pattern, const Args&... args)
{
  if (!condition) tessera::fail(tessera::Reach::collective, pattern, args...);
}

}  // namespace LAMMPS_NS
