// SPDX-License-Identifier: MIT
// tesseraplugin.so, the library that LAMMPS opens: it opens the pair style, libtessera_pair.so, where that can work.
//
// The classes of LAMMPS, the handles of MPI and the symbols of torch must be those that the pair style was compiled
// with; elsewhere its library does not load, or does worse. This one needs LAMMPS's C interface alone, which changes
// little between releases, and so lives to name what was expected and what was found.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <string>

extern "C" int lammps_version(void* lmp);
extern "C" int lammps_extract_setting(void* lmp, const char* name);

namespace {

constexpr int kLammps = TESSERA_LAMMPS_VERSION;           // yyyymmdd; 0: the headers did not tell
constexpr const char* kMpiName = TESSERA_MPI_NAME;        // "MPICH" or "Open MPI"
constexpr const char* kMpiLibrary = TESSERA_MPI_LIBRARY;  // as libraries ask for it: "libmpi.so.12"
const std::string kTorch = TESSERA_TORCH_VERSION;         // "2.13"

using Register = void(void* lmp, void* handle, void* register_function);

template <typename Function>
Function* symbol(void* library, const char* name)
{
  return reinterpret_cast<Function*>(dlsym(library, name));
}

std::string reinstall(const char* variable)
{
  return std::string(". Reinstall tessera-lammps with ") + variable + " set to that of this LAMMPS";
}

/// What keeps the pair style from working with this LAMMPS; empty if nothing does. Likewise below.
std::string misfit_of_lammps(void* lmp)
{
  const int found = lammps_version(lmp);
  if (kLammps != 0 && found != kLammps)
    return "LAMMPS version " + std::to_string(kLammps) + ", this is version " + std::to_string(found) +
           reinstall("LAMMPS_ROOT (or LAMMPS_SOURCE_DIR)");
  const int tag = lammps_extract_setting(lmp, "tagint");
  const int image = lammps_extract_setting(lmp, "imageint");
  if (tag == 4 && image == 4) return {};
  return "atom ids and images of 4 bytes (LAMMPS_SMALLBIG), this LAMMPS has ids of " + std::to_string(tag) +
         " and images of " + std::to_string(image) + " bytes. Build LAMMPS with -DLAMMPS_SIZES=smallbig";
}

/// The MPI that this process uses; without loading another, since two in one process get into each other's way.
std::string misfit_of_mpi()
{
  if (dlopen(kMpiLibrary, RTLD_NOW | RTLD_NOLOAD) != nullptr) return {};  // stays open, as LAMMPS needs it anyway
  std::string found = "none in a shared library";
  if (auto* describe = symbol<int(char*, int*)>(RTLD_DEFAULT, "MPI_Get_library_version")) {
    std::string text(8192, '\0');  // the longest: MPICH's MPI_MAX_LIBRARY_VERSION_STRING
    int length = 0;
    describe(text.data(), &length);
    found = text.substr(0, text.find_first_of(std::string("\n,\0", 3)));
  }
  return std::string(kMpiName) + " (" + kMpiLibrary + "), this LAMMPS uses another MPI: " + found +
         reinstall("TESSERA_MPI_ROOT");
}

std::string misfit_of_torch()
{
  const std::string advice = ". Install torch " + kTorch + ", or reinstall tessera-lammps for the other torch";
  void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_GLOBAL);
  if (torch == nullptr) return "torch " + kTorch + ", which does not load here: " + dlerror() + advice;
  auto* version = symbol<std::uint64_t()>(torch, "aoti_torch_abi_version");
  std::string found = "an older one";
  if (version != nullptr) found = std::to_string(version() >> 56) + "." + std::to_string((version() >> 48) & 0xFF);
  return found == kTorch ? std::string() : "torch " + kTorch + ", found here is torch " + found + advice;
}

/// Opens the pair style and lets it register itself.
std::string register_pair_style(void* lmp, void* handle, void* register_function)
{
  void* pair = dlopen("libtessera_pair.so", RTLD_NOW | RTLD_GLOBAL);
  auto* register_style = pair == nullptr ? nullptr : symbol<Register>(pair, "tessera_register_style");
  if (register_style == nullptr)
    return std::string("libraries beside it, of which one does not load: ") + dlerror() + ". Reinstall tessera-lammps";
  register_style(lmp, handle, register_function);
  return {};
}

void warn(void* lmp, const std::string& reason)
{
  if (lammps_extract_setting(lmp, "world_rank") != 0) return;
  const std::string text = "pair_style tessera is not available: the plugin was compiled for " + reason + ".";
  constexpr int kWarning = 0;
  if (auto* report = symbol<void(void*, int, const char*)>(RTLD_DEFAULT, "lammps_error")) {
    report(lmp, kWarning, text.c_str());  // also into the log file
  } else {                                // releases before the end of 2022
    std::fprintf(stderr, "WARNING: %s\n", text.c_str());
  }
}

}  // namespace

/// Called by LAMMPS after it has opened this library (LAMMPS_PLUGIN_PATH or `plugin load`).
extern "C" void lammpsplugin_init(void* lmp, void* handle, void* register_function)
{
  std::string reason = misfit_of_lammps(lmp);
  if (reason.empty()) reason = misfit_of_mpi();
  if (reason.empty()) reason = misfit_of_torch();
  if (reason.empty()) reason = register_pair_style(lmp, handle, register_function);
  if (!reason.empty()) warn(lmp, reason);
}
