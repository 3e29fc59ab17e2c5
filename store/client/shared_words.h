#pragma once
// How StoreClient reads and writes the words that it shares with the store: as the C++ says, and nothing else. Where
// MOESTRO_WATCHED_WORDS is defined, which only tests/store/pin_protocol_test does, each access goes to that test, which
// holds it up until another process's has been. So it runs every interleaving of the very code that workers run.

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace moestro::store::words {

#ifdef MOESTRO_WATCHED_WORDS
/// The test's.
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
