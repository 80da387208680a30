// SPDX-License-Identifier: GPL-2.0-only

#include "comm.h"
#include "error.h"
#include "lammps.h"
#include "pair_tessera.h"
#include "tessera/base/error.hpp"

using namespace LAMMPS_NS;

namespace {

// LAMMPS's documented plugin interface (manual, "Writing plugins"); some installations lack its lammpsplugin.h.
using PairFactory = void*(void*);
using OtherFactory = void*(void*, int, char**);

struct PluginRecord {
  const char* version;
  const char* style;
  const char* name;
  const char* info;
  const char* author;
  union {
    PairFactory* pair;
    OtherFactory* other;
  } creator;
  void* handle;
};

using RegisterFunction = void(PluginRecord*, void*);

void* create_pair_tessera(void* lmp) { return new PairTessera(static_cast<LAMMPS*>(lmp)); }

/// The layout of LAMMPS's classes changes between releases, so a plugin of another release would misread memory.
bool fits(LAMMPS* lmp)
{
  constexpr int kBuiltFor = TESSERA_LAMMPS_VERSION;  // yyyymmdd; 0: the headers did not tell
  if (kBuiltFor == 0 || kBuiltFor == lmp->num_ver) return true;
  if (lmp->comm->me == 0)
    lmp->error->warning(
        FLERR,
        tessera::format("pair_style tessera is not available: the plugin was compiled for LAMMPS version {}, this "
                        "is version {} ({}). Reinstall tessera-lammps with LAMMPS_ROOT set to this LAMMPS.",
                        kBuiltFor, lmp->num_ver, lmp->version));
  return false;
}

}  // namespace

/// Called by LAMMPS after it has opened this library (LAMMPS_PLUGIN_PATH or `plugin load`).
extern "C" void lammpsplugin_init(void* lmp, void* handle, void* register_function)
{
  auto* lammps = static_cast<LAMMPS*>(lmp);
  if (!fits(lammps)) return;
  PluginRecord record{};
  record.version = lammps->version;
  record.style = "pair";
  record.name = "tessera";
  record.info = "Tessera pair style (E2Former V2)";
  record.author = "the Tessera developers";
  record.creator.pair = &create_pair_tessera;
  record.handle = handle;
  reinterpret_cast<RegisterFunction*>(register_function)(&record, lmp);
}
