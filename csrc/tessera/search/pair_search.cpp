// SPDX-License-Identifier: MIT
#include "tessera/search/pair_search.hpp"

#include "tessera/base/error.hpp"
#include "tessera/search/cell_search.hpp"
#ifdef TESSERA_FAISS
#include "tessera/search/faiss_search.hpp"
#endif

namespace tessera {

PairSearch make_pair_search(std::string_view name)
{
  if (name == "cells") return cell_search;
#ifdef TESSERA_FAISS
  if (name == "faiss") return faiss_search;
#else
  if (name == "faiss") {
    fail(Reach::collective,
         "this build of Tessera has no FAISS search: use 'cells', or install libfaiss-dev and build with "
         "-DTESSERA_FAISS=ON");
  }
#endif
  fail(Reach::collective, "search: expected cells or faiss, found '{}'", name);
}

}  // namespace tessera
