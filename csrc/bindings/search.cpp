// SPDX-License-Identifier: MIT
#include "tessera/search/cell_search.hpp"

#include "arrays.hpp"
#include "bindings.hpp"

namespace py = pybind11;

namespace tessera {
namespace {

using bindings::Array;
using Search = NeighborList (*)(std::span<const Vec3>, std::int64_t, const Box&, double);

std::vector<std::int64_t> to_vector(const Array<std::int64_t>& array)
{
  const auto values = bindings::as_span(array);
  return {values.begin(), values.end()};
}

template <Search search>
py::tuple find_edges(const Array<double>& positions, const Mat3& cell, const std::array<bool, 3>& periodic,
                     double cutoff, std::int64_t num_receivers)
{
  const auto rows = bindings::as_vectors(positions, "positions");
  if (num_receivers < 0) num_receivers = static_cast<std::int64_t>(rows.size());
  NeighborList list;
  {
    const py::gil_scoped_release release;
    list = search(rows, num_receivers, Box(cell, Vec3{}, periodic), cutoff);
  }
  return py::make_tuple(bindings::to_array<std::int64_t>(list.receiver), bindings::to_array<std::int64_t>(list.sender),
                        bindings::to_array<std::int32_t>(list.shift, {3}));
}

py::tuple index(const Array<std::int64_t>& receiver, const Array<std::int64_t>& sender, std::int64_t num_receivers,
                std::int64_t num_rows)
{
  const auto found = index_edges(to_vector(receiver), to_vector(sender), num_receivers, num_rows);
  return py::make_tuple(bindings::to_array<std::int64_t>(found.receiver_range, {2}),
                        bindings::to_array<std::int64_t>(found.sender_order),
                        bindings::to_array<std::int64_t>(found.sender_range, {2}));
}

template <Search search>
void define(py::module_& m, const char* name, const char* text)
{
  m.def(name, &find_edges<search>, text, py::arg("positions"), py::arg("cell"), py::arg("periodic"), py::arg("cutoff"),
        py::arg("num_receivers") = -1);
}

}  // namespace

void register_search(py::module_& m)
{
  define<&cell_search>(m, "cell_search",
                       "Edges within `cutoff` (Å) as (receiver [E], sender [E], shift [E, 3]); positions [N, 3] in Å, "
                       "cell rows are lattice vectors, num_receivers = -1 stands for all rows.");
  define<&brute_force_search>(m, "brute_force_search", "The same by testing all pairs and images.");
#ifdef TESSERA_FAISS
  m.attr("HAS_FAISS") = true;
#else
  m.attr("HAS_FAISS") = false;
#endif
  m.def("index_edges", &index,
        "(receiver_range [N, 2], sender_order [E], sender_range [M, 2]) of edges sorted by receiver.",
        py::arg("receiver"), py::arg("sender"), py::arg("num_receivers"), py::arg("num_rows"));
}

}  // namespace tessera
