#pragma once
// One thread for work that would keep the server's thread from its clients: reading and writing files.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace moestro::orchestrator {

class Background {
 public:
  explicit Background(size_t queued_max);
  /// Drops what has not begun, waits for what has.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Runs `task` after those before it. False if the queue is full: it will not run. From any thread.
  [[nodiscard]] bool run(std::function<void()> task);

 private:
  void loop();

  const size_t queued_max_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;  ///< last: it uses the others
};

}  // namespace moestro::orchestrator
