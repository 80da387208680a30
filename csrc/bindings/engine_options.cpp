// SPDX-License-Identifier: MIT
#include "engine_options.hpp"

#include <pybind11/stl.h>

#include <functional>
#include <memory>
#include <string>

#include "tessera/engine/option_names.hpp"

namespace py = pybind11;

namespace tessera::bindings {

namespace {

/// Ranks are threads that copy and drop this without Python's lock, so the lines' list is behind a pointer that takes
/// it.
std::function<void(const std::string&)> append_to(const py::handle& lines)
{
  const std::shared_ptr<py::object> append(new py::object(lines.attr("append")), [](py::object* object) {
    const py::gil_scoped_acquire gil;
    delete object;
  });
  return [append](const std::string& line) {
    const py::gil_scoped_acquire gil;
    (*append)(line);
  };
}

}  // namespace

EngineOptions read_engine_options(const py::dict& options)
{
  EngineOptions out;
  for (const auto& [key, value] : options) {
    const auto name = py::cast<std::string>(key);
    if (name == "log") {
      out.log = append_to(value);
      continue;
    }
    const std::string text = py::isinstance<py::bool_>(value) ? (py::cast<bool>(value) ? "yes" : "no")
                                                              : py::cast<std::string>(py::str(value));
    if (!set_option(out, name, text)) {
      throw py::type_error("expected " + listed(option_names()) + " or log (a list), found '" + name + "'");
    }
  }
  return out;
}

py::dict to_dict(const EngineReport& report)
{
  py::dict out;
  out["steps"] = report.steps;
  out["rebuilds"] = report.num_rebuilds();
  out["rebuilds_by_cause"] = report.rebuilds;
  out["cuts"] = report.cuts;
  out["num_owned"] = report.num_owned;
  out["num_halo"] = report.num_halo;
  out["num_edges"] = report.num_edges;
  out["num_peers"] = report.num_peers;
  out["messages"] = report.messages;
  out["bytes"] = report.bytes;
  out["position_messages"] = report.position_messages;
  out["reshard_seconds"] = report.reshard_seconds;
  out["search_seconds"] = report.search_seconds;
  out["wait_seconds"] = report.wait_seconds;
  out["model_seconds"] = report.model_seconds;
  out["captures"] = report.captures;
  out["repeated_steps"] = report.repeated_steps;
  out["foreseen_bytes"] = report.foreseen_bytes;
  out["peak_bytes"] = report.peak_bytes;
  out["total_seconds"] = report.total_seconds;
  return out;
}

}  // namespace tessera::bindings
