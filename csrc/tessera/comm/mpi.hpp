// SPDX-License-Identifier: MIT
#pragma once

#include <mpi.h>

#include <memory>

#include "tessera/comm/communicator.hpp"

namespace tessera {

/// Largest user tag: the one above serves all_to_all(). MPI guarantees tags up to 32767.
constexpr int kLargestMpiTag = 32766;

/// A communicator over the ranks of `parent`, which it duplicates: its messages never meet the caller's.
///
/// Messages of any length are sent in pieces of 1 GiB. abort() ends the processes of `parent` (MPI_Abort).
/// @pre MPI is initialized; all ranks of `parent` call this.
/// @param bytes_per_piece for tests; at most 2^31 - 1.
/// @throws Error(rank) with MPI's text if a call fails.
[[nodiscard]] std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent,
                                                                  std::int64_t bytes_per_piece = std::int64_t{1} << 30);

}  // namespace tessera
