// SPDX-License-Identifier: MIT
#include "tessera/base/memory_reserve.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>

namespace tessera {

namespace {

/// Below the size from which malloc() maps a block of its own: freed, it is there for small requests.
constexpr std::size_t kBlockBytes = std::size_t{64} << 10;
constexpr int kNumBlocks = 4;

struct Block {
  Block* next;
};

// A new-handler is a plain function, so what it frees is the process's.
std::atomic<Block*> reserve{nullptr};
std::atomic<std::new_handler> earlier{nullptr};
std::mutex users_mutex;
int num_users = 0;

void release(Block* block) noexcept
{
  while (block != nullptr) {
    Block* const next = block->next;
    std::free(block);
    block = next;
  }
}

void free_reserve_or_give_up()
{
  if (Block* const block = reserve.exchange(nullptr)) {
    release(block);
    return;  // operator new tries again
  }
  const auto next = earlier.load();
  if (next == nullptr) throw std::bad_alloc();
  next();
}

/// malloc() does not call the new-handler.
Block* make_blocks() noexcept
{
  Block* first = nullptr;
  for (int k = 0; k < kNumBlocks; ++k) {
    auto* const block = static_cast<Block*>(std::malloc(kBlockBytes));
    if (block == nullptr) break;
    block->next = first;
    first = block;
  }
  return first;
}

}  // namespace

MemoryReserve::MemoryReserve() noexcept
{
  const std::lock_guard lock(users_mutex);
  if (num_users++ == 0) earlier = std::set_new_handler(free_reserve_or_give_up);
  refill();
}

MemoryReserve::~MemoryReserve()
{
  const std::lock_guard lock(users_mutex);
  if (--num_users > 0) return;
  if (std::get_new_handler() == free_reserve_or_give_up) std::set_new_handler(earlier);
  release(reserve.exchange(nullptr));
}

void MemoryReserve::refill() noexcept
{
  if (is_full()) return;
  Block* expected = nullptr;
  Block* const blocks = make_blocks();
  if (!reserve.compare_exchange_strong(expected, blocks)) release(blocks);
}

bool MemoryReserve::is_full() noexcept { return reserve.load() != nullptr; }

}  // namespace tessera
