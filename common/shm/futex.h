#pragma once
// Waiting on a word of shared memory. Raw futexes, not PRIVATE: std::atomic::wait of libstdc++ never wakes another
// process.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace moestro::shm {

/// Sleeps while `word` is `expected`, at most `timeout`. May return early; look again. Works on a read-only mapping.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds timeout);
/// Wakes every waiter of `word`, in any process.
void futex_wake_all(std::atomic<uint32_t>& word);

}  // namespace moestro::shm
