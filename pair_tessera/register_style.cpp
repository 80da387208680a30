// SPDX-License-Identifier: GPL-2.0-only
#include "lammps.h"
#include "pair_tessera.h"

using namespace LAMMPS_NS;

namespace {

// LAMMPS's documented plugin interface (manual, "Writing plugins"); some installations lack its lammpsplugin.h.
struct PluginRecord {
  const char* version;
  const char* style;
  const char* name;
  const char* info;
  const char* author;
  void* (*create_pair)(void*);  // LAMMPS has a union of factories here
  void* handle;
};

using RegisterFunction = void(PluginRecord*, void*);

void* create_pair_tessera(void* lmp) { return new PairTessera(static_cast<LAMMPS*>(lmp)); }

}  // namespace

/// Called by the plugin (csrc/plugin), once LAMMPS, MPI and torch are known to be those that this was compiled with.
extern "C" void tessera_register_style(void* lmp, void* handle, void* register_function)
{
  PluginRecord record{};
  record.version = static_cast<LAMMPS*>(lmp)->version;
  record.style = "pair";
  record.name = "tessera";
  record.info = "Tessera pair style (E2Former V2)";
  record.author = "the Tessera developers";
  record.create_pair = &create_pair_tessera;
  record.handle = handle;
  reinterpret_cast<RegisterFunction*>(register_function)(&record, lmp);
}
