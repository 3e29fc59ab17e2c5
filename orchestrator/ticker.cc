#include "orchestrator/ticker.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace moestro::orchestrator {

Ticker::Ticker(std::chrono::milliseconds every, std::function<void()> act)
    : thread_([every, act = std::move(act)](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        while (true) {
          wake.wait_for(lock, stop, every, [] { return false; });
          if (stop.stop_requested()) return;
          act();
        }
      }) {}

}  // namespace moestro::orchestrator
