// SPDX-License-Identifier: MIT
#include <c10/cuda/CUDAStream.h>

#include "tessera/model/operator_support.hpp"

namespace tessera::operators {

CUstream_st* stream_of(const at::Tensor& tensor)
{
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

}  // namespace tessera::operators
