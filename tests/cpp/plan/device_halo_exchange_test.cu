// SPDX-License-Identifier: MIT
#include "tessera/plan/device_halo_exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "failures.hpp"
#include "plan/halo_contract.hpp"
#include "tessera/comm/communicator_link.hpp"
#include "tessera/comm/nccl.hpp"
#include "tessera/comm/virtual.hpp"
#include "tessera/device/gpu.hpp"
#include "tessera/device/memory.hpp"

namespace tessera {
namespace {

using contract::SharedCommunicator;
using testing::failure_of;

constexpr int kTag = 5;
constexpr int kHost = 0, kNccl = 1;  // what connects the ranks

std::shared_ptr<DeviceLink> connect(int transport, const SharedCommunicator& comm)
{
  if (transport == kHost) return link_over(comm, kTag);
  const NcclConnection nccl = connect_nccl(*comm, Device{comm->rank()});
  TESSERA_REQUIRE(nccl.link != nullptr, "expected a GPU for each of {} ranks, found an obstacle: {}", comm->num_ranks(),
                  nccl.obstacle);
  return nccl.link;
}

template <typename T>
constexpr Scalar scalar_of()
{
  return sizeof(T) == 4 ? Scalar::float32 : Scalar::float64;
}

template <typename T>
constexpr T none()
{
  return std::numeric_limits<T>::quiet_NaN();
}

/// An exchange on a device behind arrays on the host. What nobody should read is NaN.
struct DeviceRows {
  DeviceRows(const std::shared_ptr<DeviceLink>& link, bool overlaps)
      : exchange(link, overlaps), stream(std::make_unique<Stream>(link->device()))
  {
  }

  /// @returns whether the layout has changed
  bool set_plan(const std::shared_ptr<const HaloPlan>& plan)
  {
    const bool has_changed = layout.fit(*plan);
    exchange.set_plan(plan, layout, *stream);
    slots = layout.slots(*plan);
    return has_changed;
  }

  template <typename T>
  std::vector<T> forward(std::vector<T> owned, std::int64_t channels)
  {
    owned.insert(owned.end(), 3 * channels, none<T>());  // padding rows
    DeviceArray<T> rows(exchange.device()), halo(exchange.device());
    rows.assign(owned, *stream);
    halo.assign(std::vector<T>(layout.num_slots() * channels, none<T>()), *stream);
    exchange.start_forward(rows.data(), channels, scalar_of<T>(), *stream);
    rows.assign(std::vector<T>(owned.size(), none<T>()), *stream);  // its memory is free again
    exchange.wait_forward(halo.data(), *stream);
    const std::vector<T> found = halo.to_host(*stream);
    std::vector<T> packed;
    for (const auto slot : slots) {
      packed.insert(packed.end(), found.begin() + slot * channels, found.begin() + (slot + 1) * channels);
    }
    EXPECT_EQ(std::count(found.begin(), found.end(), T(0)) - std::count(packed.begin(), packed.end(), T(0)),
              static_cast<std::int64_t>(found.size() - packed.size()))
        << "head-room is not zero";
    return packed;
  }

  template <typename T>
  void reverse(const std::vector<T>& packed, std::int64_t channels, std::vector<T>& owned)
  {
    std::vector<T> halo(layout.num_slots() * channels, none<T>());
    for (std::size_t k = 0; k < slots.size(); ++k) {
      std::copy_n(packed.begin() + k * channels, channels, halo.begin() + slots[k] * channels);
    }
    DeviceArray<T> rows(exchange.device()), sums(exchange.device());
    rows.assign(halo, *stream);
    sums.assign(owned, *stream);
    exchange.start_reverse(rows.data(), channels, scalar_of<T>(), *stream);
    rows.assign(std::vector<T>(halo.size(), none<T>()), *stream);  // its memory is free again
    exchange.wait_reverse(sums.data(), *stream);
    owned = sums.to_host(*stream);
  }

  DeviceHaloExchange exchange;
  HaloLayout layout;
  std::vector<std::int64_t> slots;
  std::unique_ptr<Stream> stream;
};

/// As contract::Halo, over a link.
template <int transport>
struct DeviceHalo : DeviceRows {
  explicit DeviceHalo(const SharedCommunicator& comm)
      : DeviceRows(connect(transport, comm), true),
        needed(contract::needed_by(comm->rank(), comm->num_ranks())),
        plan(std::make_shared<HaloPlan>(build_halo_plan(1, contract::owned_by(comm->rank()), needed, *comm)))
  {
    set_plan(plan);
  }

  std::vector<NeededRows> needed;
  std::shared_ptr<const HaloPlan> plan;
};

template <int transport>
void keeps_the_contract(const SharedCommunicator& comm)
{
  using Halo = DeviceHalo<transport>;
  contract::halo_rows_carry_their_owners_name<float, Halo>(comm);
  contract::halo_rows_carry_their_owners_name<double, Halo>(comm);
  contract::forward_then_reverse_of_ones_counts_the_copies<float, Halo>(comm);
  contract::forward_then_reverse_of_ones_counts_the_copies<double, Halo>(comm);
  contract::reverse_is_the_transpose_of_forward<Halo>(comm);
  contract::exchanges_in_a_row_do_not_mix<Halo>(comm);
}

template <typename T>
std::vector<T> random_rows(std::int64_t count, unsigned seed)
{
  const auto numbers = contract::random_numbers(count, seed);
  return {numbers.begin(), numbers.end()};
}

/// One object through epochs whose plans grow, shrink and lose peers: always what HaloExchange gives, to the last bit.
template <typename T>
void epochs_in_one_object_equal_the_host_exchange(const SharedCommunicator& comm, int transport, bool overlaps)
{
  constexpr std::int64_t kOwned = 70;
  constexpr int kEpochs = 10;
  DeviceRows device(connect(transport, comm), overlaps);
  std::int64_t arrangement = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const std::int64_t owned = kOwned - 5 * (epoch % 3);
    // Rows of the smallest epoch are asked for, so that every owner has them.
    const auto needed = contract::needed_in_epoch(epoch, comm->rank(), comm->num_ranks(), kOwned - 10);
    const auto plan = std::make_shared<HaloPlan>(build_halo_plan(epoch, owned, needed, *comm));
    const bool has_changed = device.set_plan(plan);
    HaloExchange host(plan, comm, kTag + 1);
    for (const std::int64_t channels : {1, 3, 4, 2}) {
      const auto rows = random_rows<T>(owned * channels, 7 * epoch + comm->rank());
      std::vector<T> expected(plan->num_halo * channels);
      host.start_forward(rows.data(), channels, scalar_of<T>());
      host.wait_forward(expected.data());
      EXPECT_EQ(device.forward(rows, channels), expected);

      const auto gradient = random_rows<T>(plan->num_halo * channels, 1000 + 7 * epoch + comm->rank());
      std::vector<T> sums = rows, found = rows, again = rows;
      host.start_reverse(gradient.data(), channels, scalar_of<T>());
      host.wait_reverse(sums.data());
      device.reverse(gradient, channels, found);
      EXPECT_EQ(found, sums);
      device.reverse(gradient, channels, again);
      EXPECT_EQ(found, again);
    }
    if (!has_changed && epoch > 0) {
      EXPECT_EQ(device.exchange.arrangement(), arrangement) << "a plan that fits voids what was captured";
    }
    if (has_changed) {
      EXPECT_GT(device.exchange.arrangement(), arrangement);
    }
    arrangement = device.exchange.arrangement();
  }
}

template <int transport>
void epochs_equal_the_host_exchange(const SharedCommunicator& comm)
{
  for (const bool overlaps : {true, false}) {
    epochs_in_one_object_equal_the_host_exchange<float>(comm, transport, overlaps);
    epochs_in_one_object_equal_the_host_exchange<double>(comm, transport, overlaps);
  }
}

constexpr std::array kRankCounts{1, 2, 3, 4, 8};

TEST(DeviceHaloExchange, keeps_the_contract_of_halo_exchanges_on_the_host)
{
  for (const int num_ranks : kRankCounts) run_virtual_ranks(num_ranks, keeps_the_contract<kHost>);
}

TEST(DeviceHaloExchange, epochs_in_one_object_equal_the_host_exchange_to_the_last_bit)
{
  for (const int num_ranks : kRankCounts) run_virtual_ranks(num_ranks, epochs_equal_the_host_exchange<kHost>);
}

TEST(DeviceHaloExchangeOverNccl, keeps_the_contract_with_a_gpu_a_rank)
{
  if (!has_nccl() || num_gpus() < 2) GTEST_SKIP() << "needs a build with NCCL and two GPUs, found " << num_gpus();
  for (int num_ranks = 2; num_ranks <= num_gpus(); ++num_ranks) {
    run_virtual_ranks(num_ranks, keeps_the_contract<kNccl>);
    run_virtual_ranks(num_ranks, epochs_equal_the_host_exchange<kNccl>);
  }
}

#ifdef __CUDACC__
/// A captured graph, ready to be replayed.
class Graph {
 public:
  Graph(StreamRef stream, const std::function<void()>& act)
  {
    // Of this thread alone: ranks that are threads allocate while another captures.
    TESSERA_CUDA_CHECK(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeThreadLocal));
    act();
    TESSERA_CUDA_CHECK(cudaStreamEndCapture(stream.handle, &graph_));
    TESSERA_CUDA_CHECK(cudaGraphInstantiate(&program_, graph_, 0));
  }
  ~Graph()
  {
    (void)cudaGraphExecDestroy(program_);
    (void)cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay(StreamRef stream) { TESSERA_CUDA_CHECK(cudaGraphLaunch(program_, stream.handle)); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t program_ = nullptr;
};

/// A forward and a reverse exchange of the rows that come back, of doubles at fixed addresses.
struct RoundTrip {
  static constexpr std::int64_t kChannels = 6;

  RoundTrip(DeviceRows& device, std::int64_t num_owned)
      : exchange(device.exchange),
        stream(*device.stream),
        rows(exchange.device()),
        halo(exchange.device()),
        sums(exchange.device())
  {
    rows.resize(num_owned * kChannels);
    sums.resize(num_owned * kChannels);
    halo.resize(device.layout.num_slots() * kChannels);
  }

  void queue()
  {
    exchange.start_forward(rows.data(), kChannels, Scalar::float64, stream);
    exchange.wait_forward(halo.data(), stream);
    exchange.start_reverse(halo.data(), kChannels, Scalar::float64, stream);
    clear_bytes(sums.data(), sums.count() * sizeof(double), stream);
    exchange.wait_reverse(sums.data(), stream);
  }

  DeviceHaloExchange& exchange;
  StreamRef stream;
  DeviceArray<double> rows, halo, sums;
};

/// The same on the host.
std::vector<double> round_trip(const std::shared_ptr<const HaloPlan>& plan, const SharedCommunicator& comm,
                               const std::vector<double>& rows)
{
  HaloExchange host(plan, comm, kTag + 1);
  std::vector<double> halo(plan->num_halo * RoundTrip::kChannels), sums(rows.size(), 0);
  host.start_forward(rows.data(), RoundTrip::kChannels, Scalar::float64);
  host.wait_forward(halo.data());
  host.start_reverse(halo.data(), RoundTrip::kChannels, Scalar::float64);
  host.wait_reverse(sums.data());
  return sums;
}

void replays_follow_rows_and_plans(const SharedCommunicator& comm, const std::shared_ptr<DeviceLink>& link)
{
  constexpr std::int64_t kOwned = 60;
  constexpr int kPlans = 3;
  const CurrentDevice scope(link->device());
  for (const bool overlaps : {true, false}) {
    DeviceRows device(link, overlaps);
    std::vector<std::shared_ptr<const HaloPlan>> plans;
    for (int epoch = 0; epoch < kPlans; ++epoch) {
      const auto needed = contract::needed_in_epoch(epoch, comm->rank(), comm->num_ranks(), kOwned);
      plans.push_back(std::make_shared<HaloPlan>(build_halo_plan(epoch, kOwned, needed, *comm)));
      device.layout.fit(*plans.back());
    }
    EXPECT_FALSE(device.set_plan(plans[0])) << "the layout has room for all of them";
    RoundTrip trip(device, kOwned);
    trip.queue();  // sizes the buffers
    const auto arrangement = device.exchange.arrangement();
    Graph graph(trip.stream, [&] { trip.queue(); });
    for (int round = 0; round < 2 * kPlans; ++round) {
      device.set_plan(plans[round % kPlans]);
      EXPECT_EQ(device.exchange.arrangement(), arrangement);
      const auto rows = contract::random_numbers(trip.rows.count(), 50 * round + comm->rank());
      trip.rows.assign(rows, trip.stream);
      graph.replay(trip.stream);
      EXPECT_EQ(trip.sums.to_host(trip.stream), round_trip(plans[round % kPlans], comm, rows));
    }
  }
}

TEST(DeviceHaloExchangeCapture, a_replay_follows_new_rows_and_a_new_plan_of_the_same_layout)
{
  if (num_gpus() == 0) GTEST_SKIP() << "needs a GPU";
  replays_follow_rows_and_plans(make_serial_communicator(), link_to_self(Device{0}));
}

TEST(DeviceHaloExchangeOverNccl, a_replay_follows_new_rows_and_a_new_plan_of_the_same_layout)
{
  if (!has_nccl() || num_gpus() < 2) GTEST_SKIP() << "needs a build with NCCL and two GPUs, found " << num_gpus();
  run_virtual_ranks(2,
                    [](const SharedCommunicator& comm) { replays_follow_rows_and_plans(comm, connect(kNccl, comm)); });
}

TEST(DeviceHaloExchangeCapture, a_buffer_that_would_have_to_grow_is_refused)
{
  if (num_gpus() == 0) GTEST_SKIP() << "needs a GPU";
  const auto comm = make_serial_communicator();
  DeviceRows device(link_to_self(Device{0}), true);
  const auto needed = contract::needed_in_epoch(1, 0, 1, 20);
  device.set_plan(std::make_shared<HaloPlan>(build_halo_plan(1, 20, needed, *comm)));
  RoundTrip trip(device, 20);
  Graph graph(trip.stream, [&] {
    try {
      trip.queue();
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("before the capture of a graph"), std::string::npos) << error.what();
    }
  });
  trip.queue();  // and nothing is in flight
  synchronize(trip.stream);
}
#endif

#define EXPECT_FAILURE(text, act)                                \
  do {                                                           \
    const std::string failure = failure_of([&] { act; });        \
    EXPECT_NE(failure.find(text), std::string::npos) << failure; \
  } while (false)

/// Three owned rows of which the rank sends itself the last and the first.
std::shared_ptr<const HaloPlan> self_plan()
{
  return std::make_shared<HaloPlan>(HaloPlan{1, 3, 2, {{0, {2, 0}, 0, 2}}});
}

TEST(DeviceHaloExchangeOrder, starts_and_waits_out_of_order_are_refused)
{
  DeviceHaloExchange exchange(link_to_self({}));
  std::vector<double> rows(10);
  EXPECT_FAILURE("call set_plan() first", exchange.start_forward(rows.data(), 1, Scalar::float64, {}));
  EXPECT_FAILURE("call set_plan() first", (void)exchange.plan());
  exchange.set_plan(self_plan(), HaloLayout::exact(*self_plan()), {});
  EXPECT_FAILURE("no exchange is in flight", exchange.wait_forward(rows.data(), {}));
  EXPECT_FAILURE("no exchange is in flight", exchange.wait_reverse(rows.data(), {}));
  exchange.start_forward(rows.data(), 4, Scalar::float32, {});
  EXPECT_EQ(exchange.channels_in_flight(), 4);
  EXPECT_FAILURE("is in flight", exchange.start_forward(rows.data(), 1, Scalar::float64, {}));
  EXPECT_FAILURE("is in flight", exchange.start_reverse(rows.data(), 1, Scalar::float64, {}));
  EXPECT_FAILURE("is in flight", exchange.set_plan(self_plan(), HaloLayout::exact(*self_plan()), {}));
  EXPECT_FAILURE("a forward exchange is in flight", exchange.wait_reverse(rows.data(), {}));
  exchange.wait_forward(rows.data(), {});
  EXPECT_EQ(exchange.channels_in_flight(), 0);
  exchange.start_reverse(rows.data(), 1, Scalar::float64, {});
  exchange.wait_reverse(rows.data(), {});
}

TEST(DeviceHaloExchangeInput, what_does_not_fit_together_is_refused)
{
  EXPECT_THROW(DeviceHaloExchange(nullptr), Error);
  DeviceHaloExchange exchange(link_to_self({}));
  const HaloPlan far{1, 1, 1, {{1, {0}, 0, 1}}};
  EXPECT_FAILURE("names rank 1, the link has 1",
                 exchange.set_plan(std::make_shared<HaloPlan>(far), HaloLayout::exact(far), {}));
  EXPECT_FAILURE("expected room for 2 rows to", exchange.set_plan(self_plan(), HaloLayout(), {}));
  EXPECT_FAILURE("found none", exchange.set_plan(nullptr, HaloLayout(), {}));
  EXPECT_FAILURE("expected rows on the device of the link",
                 exchange.set_plan(self_plan(), HaloLayout::exact(*self_plan()), {Device{0}, nullptr}));
}

TEST(DeviceHaloExchangeTraffic, head_room_is_counted_because_it_travels)
{
  run_virtual_ranks(2, [](const SharedCommunicator& comm) {
    const bool is_sender = comm->rank() == 0;  // of two rows to rank 1, which sends none
    const HaloPeer peer = is_sender ? HaloPeer{1, {0, 2}, 0, 0} : HaloPeer{0, {}, 0, 2};
    DeviceRows rows(link_over(comm, kTag), true);
    rows.set_plan(std::make_shared<HaloPlan>(HaloPlan{1, 3, is_sender ? 0 : 2, {peer}}));
    rows.forward(std::vector<float>(12, 1), 4);
    const std::int64_t bytes = HaloLayout::grown(2) * 4 * 4;
    EXPECT_EQ(rows.exchange.traffic().messages, is_sender ? 1 : 0);
    EXPECT_EQ(rows.exchange.traffic().bytes, is_sender ? bytes : 0);
    std::vector<float> sums(12, 0);
    rows.reverse(std::vector<float>(is_sender ? 0 : 8, 1), 4, sums);
    EXPECT_EQ(rows.exchange.traffic().messages, 1);
    EXPECT_EQ(rows.exchange.traffic().bytes, bytes);
  });
}

}  // namespace
}  // namespace tessera
