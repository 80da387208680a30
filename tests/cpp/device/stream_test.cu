// SPDX-License-Identifier: MIT
#include "tessera/device/stream.hpp"

#include <gtest/gtest.h>

#include <set>

#include "devices.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/gpu.hpp"

namespace tessera {
namespace {

TEST(Stream, captures_only_between_the_begin_and_the_end_of_a_capture)
{
  EXPECT_FALSE(is_capturing({}));
#ifdef __CUDACC__
  if (num_gpus() == 0) GTEST_SKIP() << "the rest needs a GPU";
  const Stream stream(Device{0});
  EXPECT_FALSE(is_capturing(stream));
  cudaGraph_t graph = nullptr;
  TESSERA_CUDA_CHECK(cudaStreamBeginCapture(StreamRef(stream).handle, cudaStreamCaptureModeThreadLocal));
  EXPECT_TRUE(is_capturing(stream));
  TESSERA_CUDA_CHECK(cudaStreamEndCapture(StreamRef(stream).handle, &graph));
  EXPECT_FALSE(is_capturing(stream));
  TESSERA_CUDA_CHECK(cudaGraphDestroy(graph));
#endif
}

TEST(Stream, of_high_priority_goes_before_others)
{
  if (num_gpus() == 0) GTEST_SKIP() << "needs a GPU";
#ifdef __CUDACC__
  const Stream normal(Device{0}), high(Device{0}, Priority::high);
  int number_of_normal = 0, number_of_high = 0;
  TESSERA_CUDA_CHECK(cudaStreamGetPriority(StreamRef(normal).handle, &number_of_normal));
  TESSERA_CUDA_CHECK(cudaStreamGetPriority(StreamRef(high).handle, &number_of_high));
  EXPECT_LT(number_of_high, number_of_normal);  // lower numbers go first
#endif
}

TEST(Stream, is_taken_again_by_the_next_owner_of_its_kind_and_by_nobody_before)
{
  if (num_gpus() == 0) GTEST_SKIP() << "needs a GPU";
#ifdef __CUDACC__
  CUstream_st *first = nullptr, *second = nullptr;
  {
    const Stream one(Device{0}), two(Device{0});
    first = StreamRef(one).handle;
    second = StreamRef(two).handle;
    EXPECT_NE(first, second);
  }
  const Stream high(Device{0}, Priority::high), one(Device{0}), two(Device{0}), three(Device{0});
  EXPECT_NE(StreamRef(high).handle, first);
  EXPECT_NE(StreamRef(high).handle, second);
  EXPECT_EQ((std::set{StreamRef(one).handle, StreamRef(two).handle}), (std::set{first, second}));
  EXPECT_NE(StreamRef(three).handle, first);
  EXPECT_NE(StreamRef(three).handle, second);
#endif
}

TEST(Stream, whose_recording_was_broken_off_is_taken_by_nobody)
{
  if (num_gpus() == 0) GTEST_SKIP() << "needs a GPU";
#ifdef __CUDACC__
  {
    const Stream broken(Device{0});
    TESSERA_CUDA_CHECK(cudaStreamBeginCapture(StreamRef(broken).handle, cudaStreamCaptureModeThreadLocal));
  }
  const Stream next(Device{0});
  EXPECT_FALSE(is_capturing(next));
  synchronize(next);
#endif
}

TEST(Gpu, has_a_place_in_its_host_that_no_other_has)
{
  for (int one = 0; one < num_gpus(); ++one) {
    EXPECT_NE(gpu_bus_id(one).find(':'), std::string::npos) << gpu_bus_id(one);
    for (int other = 0; other < one; ++other) EXPECT_NE(gpu_bus_id(one), gpu_bus_id(other));
  }
  EXPECT_THROW((void)gpu_bus_id(num_gpus()), Error);
}

}  // namespace
}  // namespace tessera
