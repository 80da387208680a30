// SPDX-License-Identifier: MIT
#include <pybind11/functional.h>

#include <functional>

#include "arrays.hpp"
#include "bindings.hpp"
#include "tessera/topology/cut_report.hpp"

namespace py = pybind11;

namespace tessera {
namespace {

using bindings::Array;
using bindings::to_array;

py::dict to_dict(const CutReport& report)
{
  py::list lists;
  for (const Contacts& contacts : report.contacts) {
    std::vector<std::int64_t> num_peers;
    for (const auto& peers : contacts.peers) num_peers.push_back(static_cast<std::int64_t>(peers.size()));
    py::dict list;
    list["edges"] = to_array<std::int64_t>(contacts.edges);
    list["local_edges"] = to_array<std::int64_t>(contacts.local_edges);
    list["halo_rows"] = to_array<std::int64_t>(contacts.halo_rows);
    list["sent_rows"] = to_array<std::int64_t>(contacts.sent_rows);
    list["peers"] = to_array<std::int64_t>(num_peers);
    lists.append(list);
  }
  py::dict dict;
  dict["num_ranks"] = report.num_shards;
  dict["owned"] = to_array<std::int64_t>(report.owned);
  dict["lists"] = lists;
  dict["rank_box_candidates"] = to_array<int>(report.rank_box_candidates);
  dict["multi_box_candidates"] = to_array<int>(report.multi_box_candidates);
  dict["key_range_candidates"] = to_array<int>(report.key_range_candidates);
  return dict;
}

CurveKind curve_named(const std::string& name)
{
  if (name == "hilbert") return CurveKind::hilbert;
  if (name == "morton") return CurveKind::morton;
  throw py::value_error("curve: expected 'hilbert' or 'morton', found '" + name + "'");
}

py::list plan_cuts(const Array<double>& positions, const Mat3& cell, const Vec3& origin,
                   const std::array<bool, 3>& periodic, const std::string& curve, const std::vector<int>& ranks,
                   const std::vector<double>& cutoffs, int boxes_per_rank, int num_threads,
                   const std::function<void(double)>& progress)
{
  const auto rows = bindings::as_vectors(positions, "positions");
  const CurveKind kind = curve_named(curve);
  std::vector<CutReport> reports;
  {
    const py::gil_scoped_release release;
    const auto report_progress = [&](double part) {
      const py::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (progress) progress(part);
    };
    reports = report_cuts(rows, Box(cell, origin, periodic), kind, ranks, cutoffs, boxes_per_rank, num_threads,
                          report_progress);
  }
  py::list list;
  for (const CutReport& report : reports) list.append(to_dict(report));
  return list;
}

}  // namespace

void register_plan(py::module_& m)
{
  m.def("plan_cuts", &plan_cuts,
        "Simulate the equal-count cut into each number of ranks in one process (C++: report_cuts). Positions [N, 3] "
        "and cell rows in Å, cutoffs ascending in Å. Returns one dict a number of ranks: owned [K], candidates of the "
        "three filters [K], and one dict a cutoff with edges, local_edges, halo_rows, sent_rows and peers [K].",
        py::arg("positions"), py::arg("cell"), py::arg("origin"), py::arg("periodic"), py::arg("curve"),
        py::arg("ranks"), py::arg("cutoffs"), py::arg("boxes_per_rank") = 8, py::arg("num_threads") = 1,
        py::arg("progress") = py::none());
}

}  // namespace tessera
