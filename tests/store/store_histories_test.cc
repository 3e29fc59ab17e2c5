// Seeded histories of a simulated box (store_world.h). MOESTRO_STORE_EVENTS=50000000 asks for more of them than a run
// of all tests has time for, MOESTRO_STORE_SEED=N for one history again.

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <iostream>

#include "tests/store/store_world.h"

namespace moestro::store::testing {
namespace {

constexpr uint64_t kEventsOfAHistory = 6000;

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Of the history that runs, for when a check of the machine ends the process.
uint64_t seed_of_now = 0;
void say_seed(int signal) {
  std::cerr << "died in the history of MOESTRO_STORE_SEED=" << seed_of_now << std::endl;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

TEST(StoreHistories, KeepEveryPromise) {
  const uint64_t events = setting("MOESTRO_STORE_EVENTS", 2000000), only = setting("MOESTRO_STORE_SEED", 0);
  std::signal(SIGABRT, say_seed), std::signal(SIGSEGV, say_seed);
  StoreWorld::Tally all;
  uint64_t seed = only == 0 ? 1 : only;
  for (; all.events < events && (only == 0 || seed == only); ++seed) {
    seed_of_now = seed;
    StoreWorld world(seed);
    try {
      world.run(kEventsOfAHistory);
    } catch (const std::exception& found) {
      FAIL() << found.what() << ": MOESTRO_STORE_SEED=" << seed << ", event " << world.tally().events;
    }
    all.add(world.tally());
  }
  std::cout << "seeds " << (only == 0 ? 1 : only) << " to " << seed - 1 << ": " << all.text() << "\n";
  if (only != 0) return;
  for (const uint64_t came_about :
       {all.leases, all.adoptions, all.damaged, all.rereads, all.bad_dense, all.elsewhere, all.aliases,
        all.dense_aliases, all.warm, all.packs_gone, all.removed_while_warming, all.mended, all.stops, all.outlooks,
        all.read_ahead, all.given_up, all.streamed})
    EXPECT_GT(came_about, 0u) << all.text();
}

}  // namespace
}  // namespace moestro::store::testing
