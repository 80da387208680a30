// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/comm/local_rank.hpp"

// What every communicator promises, as bodies that all ranks run; they never name the back end.
namespace tessera::contract {

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values)
{
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

template <typename T>
std::vector<T> values_of(const std::vector<std::byte>& bytes)
{
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// All ranks of a test share this host, so a rank's place here is its rank.
inline void ranks_of_one_host_are_numbered(Communicator& comm) { EXPECT_EQ(local_rank(comm), comm.rank()); }

inline void reductions_combine_every_rank(Communicator& comm)
{
  const int n = comm.num_ranks();
  const int r = comm.rank();
  std::vector<double> sum{1.0 * r, 0.5}, low{-1.0 * r}, high{-1.0 * r};
  comm.all_reduce(std::span<double>(sum), Reduction::sum);
  comm.all_reduce(std::span<double>(low), Reduction::min);
  comm.all_reduce(std::span<double>(high), Reduction::max);
  EXPECT_EQ(sum, (std::vector<double>{n * (n - 1) / 2.0, 0.5 * n}));
  EXPECT_EQ(low[0], -(n - 1.0));
  EXPECT_EQ(high[0], 0.0);
  // Integers beyond the precision of a double.
  std::vector<std::int64_t> large{(std::int64_t{1} << 60) + r};
  comm.all_reduce(std::span<std::int64_t>(large), Reduction::max);
  EXPECT_EQ(large[0], (std::int64_t{1} << 60) + n - 1);
  comm.all_reduce(std::span<std::int64_t>(), Reduction::sum);
}

inline void gathered_records_stand_in_rank_order(Communicator& comm)
{
  const auto all = values_of<std::int64_t>(comm.all_gather(bytes_of(std::vector<std::int64_t>{comm.rank(), 7})));
  std::vector<std::int64_t> expected;
  for (int r = 0; r < comm.num_ranks(); ++r) expected.insert(expected.end(), {r, 7});
  EXPECT_EQ(all, expected);
}

/// Rank `from` sends (from + 2 to) % 4 numbers to rank `to`, each naming both.
inline void all_to_all_delivers_uneven_and_empty_parts(Communicator& comm)
{
  const auto part = [](int from, int to) {
    std::vector<std::int64_t> values;
    for (int k = 0; k < (from + 2 * to) % 4; ++k) values.push_back(1000000 * from + 1000 * to + k);
    return values;
  };
  std::vector<std::int64_t> data, sizes, expected, expected_sizes, received_sizes;
  for (int r = 0; r < comm.num_ranks(); ++r) {
    const auto mine = part(comm.rank(), r);
    const auto theirs = part(r, comm.rank());
    data.insert(data.end(), mine.begin(), mine.end());
    expected.insert(expected.end(), theirs.begin(), theirs.end());
    sizes.push_back(static_cast<std::int64_t>(8 * mine.size()));
    expected_sizes.push_back(static_cast<std::int64_t>(8 * theirs.size()));
  }
  const auto received = values_of<std::int64_t>(comm.all_to_all(bytes_of(data), sizes, received_sizes));
  EXPECT_EQ(received, expected);
  EXPECT_EQ(received_sizes, expected_sizes);
}

/// Every pair of ranks (oneself included), two tags, three messages each; waited for in reverse.
inline void messages_of_one_tag_keep_their_order(Communicator& comm)
{
  constexpr int kMessages = 3;
  const auto text = [](int from, int to, int tag, int k) { return 1000000.0 * from + 10000.0 * to + 100.0 * tag + k; };
  struct Expected {
    std::unique_ptr<Request> request;
    std::unique_ptr<double> value;
    double expected;
  };
  std::vector<Expected> expected;
  std::vector<std::unique_ptr<Request>> sends;
  std::vector<std::unique_ptr<double>> sent;
  for (int other = 0; other < comm.num_ranks(); ++other) {
    for (const int tag : {5, 2}) {
      for (int k = 0; k < kMessages; ++k) {
        auto value = std::make_unique<double>(-1);
        auto request = comm.receive(std::as_writable_bytes(std::span(value.get(), 1)), other, tag);
        expected.push_back({std::move(request), std::move(value), text(other, comm.rank(), tag, k)});
      }
    }
  }
  for (int other = 0; other < comm.num_ranks(); ++other) {
    for (const int tag : {2, 5}) {
      for (int k = 0; k < kMessages; ++k) {
        sent.push_back(std::make_unique<double>(text(comm.rank(), other, tag, k)));
        sends.push_back(comm.send(std::as_bytes(std::span(sent.back().get(), 1)), other, tag));
      }
    }
  }
  for (auto it = expected.rbegin(); it != expected.rend(); ++it) {
    it->request->wait();
    EXPECT_EQ(*it->value, it->expected);
  }
  for (auto& request : sends) request->wait();
}

inline void long_and_empty_messages_arrive_whole(Communicator& comm)
{
  const int next = (comm.rank() + 1) % comm.num_ranks();
  const int previous = (comm.rank() + comm.num_ranks() - 1) % comm.num_ranks();
  for (const std::int64_t length : {0, 1, 1000, 300001}) {
    std::vector<std::int64_t> data(length), received(length, -1), expected(length);
    for (std::int64_t k = 0; k < length; ++k) {
      data[k] = 1000000 * comm.rank() + k;
      expected[k] = 1000000 * previous + k;
    }
    auto receive = comm.receive(std::as_writable_bytes(std::span(received)), previous, 1);
    auto send = comm.send(std::as_bytes(std::span(data)), next, 1);
    receive->wait();
    send->wait();
    EXPECT_EQ(received, expected);
  }
}

inline void many_collectives_in_a_row_do_not_mix(Communicator& comm)
{
  for (std::int64_t round = 0; round < 200; ++round) {
    std::vector<std::int64_t> sum{round * comm.rank()};
    comm.all_reduce(std::span<std::int64_t>(sum), Reduction::sum);
    const std::int64_t n = comm.num_ranks();
    ASSERT_EQ(sum[0], round * n * (n - 1) / 2);
    if (round % 3 == 0) comm.barrier();
  }
}

/// Nobody passes a barrier before all have come: each rank's note is there when the others look.
inline void a_barrier_waits_for_all(Communicator& comm, std::vector<int>& notes)
{
  notes[comm.rank()] = 1;
  comm.barrier();
  for (const int note : notes) EXPECT_EQ(note, 1);
}

inline void ranks_and_tags_that_do_not_exist_are_refused(Communicator& comm)
{
  std::vector<std::byte> data(4);
  EXPECT_THROW((void)comm.send(data, comm.num_ranks(), 0), Error);
  EXPECT_THROW((void)comm.send(data, -1, 0), Error);
  EXPECT_THROW((void)comm.receive(data, comm.num_ranks(), 0), Error);
  std::vector<std::int64_t> from;
  EXPECT_THROW((void)comm.all_to_all(data, std::vector<std::int64_t>(comm.num_ranks(), 5), from), Error);
  EXPECT_THROW((void)comm.all_to_all(data, std::vector<std::int64_t>(comm.num_ranks() + 1, 0), from), Error);
}

inline void a_message_of_another_length_is_refused(Communicator& comm)
{
  std::vector<std::byte> data(4), longer(8);
  auto send = comm.send(data, comm.rank(), 3);
  auto receive = comm.receive(longer, comm.rank(), 3);
  try {
    receive->wait();
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("expected 8 bytes, found 4"), std::string::npos) << error.what();
  }
  send->wait();
}

}  // namespace tessera::contract
