// SPDX-License-Identifier: MIT
// Preloaded by test_out_of_memory.py: once a large request is refused, takes what is left, to the last bytes. A busy
// process can be left so by chance; here it always is.
#include <dlfcn.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>

namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20;
constexpr std::size_t kSmallest = 16;

void take_what_is_left()
{
  for (std::size_t size = kLarge; size >= kSmallest; size /= 2) {
    while (void* volatile block = std::malloc(size)) (void)block;
  }
}

}  // namespace

extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t size)
{
  using Function = int (*)(void**, std::size_t, std::size_t);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "posix_memalign"));
  const int code = next(memory, alignment, size);
  if (code == ENOMEM && size >= kLarge) take_what_is_left();
  return code;
}
