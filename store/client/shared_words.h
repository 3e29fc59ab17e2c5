#pragma once
// How StoreClient accesses the words that it shares with the store: by plain C++ atomics. If MOESTRO_WATCHED_WORDS is
// defined (only tests/store/pin_protocol_test does so), each access goes through that test, which can delay it. So the
// test runs every interleaving of the same code that workers run.

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace moestro::store::words {

#ifdef MOESTRO_WATCHED_WORDS
/// Defined by the test.
uint64_t watched_load(const std::atomic<uint64_t>& word, std::memory_order order);
uint32_t watched_load(const std::atomic<uint32_t>& word, std::memory_order order);
void watched_store(std::atomic<uint64_t>& word, uint64_t value, std::memory_order order);
#endif

template <typename T>
T load(const std::atomic<T>& word, std::memory_order order) {
#ifdef MOESTRO_WATCHED_WORDS
  return watched_load(word, order);
#else
  return word.load(order);
#endif
}

template <typename T>
void store(std::atomic<T>& word, std::type_identity_t<T> value, std::memory_order order) {
#ifdef MOESTRO_WATCHED_WORDS
  watched_store(word, value, order);
#else
  word.store(value, order);
#endif
}

}  // namespace moestro::store::words
