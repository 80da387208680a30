// SPDX-License-Identifier: GPL-2.0-only
#include "comm.h"
#include "error.h"
#include "lammps.h"
#include "pair_tessera.h"
#include "platform.h"
#include "tessera/base/error.hpp"

using namespace LAMMPS_NS;

namespace {

#if defined(TESSERA_MPI_VENDOR)  // a test's claim
constexpr std::string_view kMpi = TESSERA_MPI_VENDOR;
#elif defined(OPEN_MPI)
constexpr std::string_view kMpi = "Open MPI";  // in the words of LAMMPS's platform::mpi_vendor()
#else
constexpr std::string_view kMpi = "MPICH";  // and what shares its ABI
#endif

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

/// What keeps this plugin from working with `lmp`; empty if nothing does.
///
/// The layout of LAMMPS's classes changes between releases, and handles of one MPI mean nothing to another.
std::string misfit(LAMMPS* lmp)
{
  constexpr int kBuiltFor = TESSERA_LAMMPS_VERSION;  // yyyymmdd; 0: the headers did not tell
  if (kBuiltFor != 0 && kBuiltFor != lmp->num_ver)
    return tessera::format("LAMMPS version {}, this is version {} ({}). Reinstall tessera-lammps with LAMMPS_ROOT",
                           kBuiltFor, lmp->num_ver, lmp->version);
  const std::string vendor = platform::mpi_vendor();
  if (kMpi != vendor && !(kMpi == "MPICH" && vendor == "Intel MPI"))
    return tessera::format("{}, this LAMMPS uses {}. Reinstall tessera-lammps with TESSERA_MPI_ROOT", kMpi, vendor);
  return {};
}

}  // namespace

/// Called by LAMMPS after it has opened this library (LAMMPS_PLUGIN_PATH or `plugin load`).
extern "C" void lammpsplugin_init(void* lmp, void* handle, void* register_function)
{
  auto* lammps = static_cast<LAMMPS*>(lmp);
  const std::string reason = misfit(lammps);
  if (!reason.empty()) {
    if (lammps->comm->me == 0)
      lammps->error->warning(FLERR, "pair_style tessera is not available: the plugin was compiled for " + reason +
                                        " set to that of this LAMMPS.");
    return;
  }
  PluginRecord record{};
  record.version = lammps->version;
  record.style = "pair";
  record.name = "tessera";
  record.info = "Tessera pair style (E2Former V2)";
  record.author = "the Tessera developers";
  record.create_pair = &create_pair_tessera;
  record.handle = handle;
  reinterpret_cast<RegisterFunction*>(register_function)(&record, lmp);
}
