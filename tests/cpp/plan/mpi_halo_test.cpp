// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "plan/halo_contract.hpp"
#include "tessera/comm/mpi.hpp"

namespace tessera {
namespace {

class MpiHalo : public ::testing::Test {
 protected:
  contract::SharedCommunicator comm = make_mpi_communicator(MPI_COMM_WORLD);
};

TEST_F(MpiHalo, halo_rows_carry_their_owners_name)
{
  contract::halo_rows_carry_their_owners_name<float>(comm);
  contract::halo_rows_carry_their_owners_name<double>(comm);
}
TEST_F(MpiHalo, forward_then_reverse_of_ones_counts_the_copies)
{
  contract::forward_then_reverse_of_ones_counts_the_copies<double>(comm);
}
TEST_F(MpiHalo, reverse_is_the_transpose_of_forward) { contract::reverse_is_the_transpose_of_forward<>(comm); }
TEST_F(MpiHalo, exchanges_in_a_row_do_not_mix) { contract::exchanges_in_a_row_do_not_mix<>(comm); }

}  // namespace
}  // namespace tessera
