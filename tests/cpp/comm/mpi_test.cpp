// SPDX-License-Identifier: MIT
#include "tessera/comm/mpi.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "comm/communicator_contract.hpp"
#include "tessera/comm/local_rank.hpp"

namespace tessera {
namespace {

constexpr std::int64_t kSmallPiece = 1024;  // bytes; makes every long message one of many pieces

class Mpi : public ::testing::Test {
 protected:
  std::unique_ptr<Communicator> comm = make_mpi_communicator(MPI_COMM_WORLD);
  std::unique_ptr<Communicator> comm_of_pieces = make_mpi_communicator(MPI_COMM_WORLD, kSmallPiece);
};

TEST_F(Mpi, reductions_combine_every_rank) { contract::reductions_combine_every_rank(*comm); }
TEST_F(Mpi, gathered_records_stand_in_rank_order) { contract::gathered_records_stand_in_rank_order(*comm); }
TEST_F(Mpi, all_to_all_delivers_uneven_and_empty_parts) { contract::all_to_all_delivers_uneven_and_empty_parts(*comm); }
TEST_F(Mpi, messages_of_one_tag_keep_their_order) { contract::messages_of_one_tag_keep_their_order(*comm); }
TEST_F(Mpi, long_and_empty_messages_arrive_whole) { contract::long_and_empty_messages_arrive_whole(*comm); }
TEST_F(Mpi, long_messages_arrive_whole_in_pieces) { contract::long_and_empty_messages_arrive_whole(*comm_of_pieces); }
TEST_F(Mpi, many_collectives_in_a_row_do_not_mix) { contract::many_collectives_in_a_row_do_not_mix(*comm); }
TEST_F(Mpi, a_message_of_another_length_is_refused) { contract::a_message_of_another_length_is_refused(*comm); }
TEST_F(Mpi, ranks_and_tags_that_do_not_exist_are_refused)
{
  contract::ranks_and_tags_that_do_not_exist_are_refused(*comm);
  std::vector<std::byte> data(1);
  EXPECT_THROW((void)comm->send(data, 0, kLargestMpiTag + 1), Error);
  EXPECT_THROW((void)comm->send(data, 0, -1), Error);
}

TEST_F(Mpi, places_on_the_host_are_told_apart_across_replicas)
{
  const auto place = launcher_local_rank();
  ASSERT_TRUE(place.has_value()) << "expected mpiexec to set MPI_LOCALRANKID or OMPI_COMM_WORLD_LOCAL_RANK";
  EXPECT_EQ(*place, local_rank(*comm));  // one host
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, comm->rank() % 2, comm->rank(), &half);
  EXPECT_EQ(local_rank(*make_mpi_communicator(half)), comm->rank() / 2) << "within a replica places start anew";
  EXPECT_EQ(*launcher_local_rank(), comm->rank()) << "the launcher's do not";
  MPI_Comm_free(&half);
}

TEST_F(Mpi, messages_of_two_communicators_never_meet)
{
  std::vector<std::int64_t> one{1}, two{2}, from_one{0}, from_two{0};
  const int me = comm->rank();
  auto first = comm->send(std::as_bytes(std::span(one)), me, 4);
  auto second = comm_of_pieces->send(std::as_bytes(std::span(two)), me, 4);
  comm_of_pieces->receive(std::as_writable_bytes(std::span(from_two)), me, 4)->wait();
  comm->receive(std::as_writable_bytes(std::span(from_one)), me, 4)->wait();
  first->wait();
  second->wait();
  EXPECT_EQ(from_one[0], 1);
  EXPECT_EQ(from_two[0], 2);
}

TEST_F(Mpi, a_communicator_covers_the_ranks_of_its_parent_alone)
{
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, comm->rank() % 2, 0, &half);
  {
    const auto part = make_mpi_communicator(half);
    std::vector<std::int64_t> count{1};
    part->all_reduce(std::span<std::int64_t>(count), Reduction::sum);
    EXPECT_EQ(count[0], (comm->num_ranks() + 1 - comm->rank() % 2) / 2);
    EXPECT_EQ(part->num_ranks(), count[0]);
  }
  MPI_Comm_free(&half);
}

}  // namespace
}  // namespace tessera

/// With `--abort`, the last rank aborts while the others wait in a barrier.
int main(int argc, char** argv)
{
  MPI_Init(&argc, &argv);
  ::testing::InitGoogleTest(&argc, argv);
  int result = 0;
  if (argc > 1 && std::strcmp(argv[1], "--abort") == 0) {
    const auto comm = tessera::make_mpi_communicator(MPI_COMM_WORLD);
    if (comm->rank() == comm->num_ranks() - 1) comm->abort("the last rank ran out of memory");
    comm->barrier();
  } else {
    result = RUN_ALL_TESTS();
  }
  MPI_Finalize();
  return result;
}
