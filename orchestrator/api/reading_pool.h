#pragma once
// Threads for what would keep the server's thread from its clients: reading and tokenizing large bodies, schemas.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "orchestrator/api/work_queue.h"
#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

class ReadingPool {
 public:
  /// What comes of the work: what is to be done with the exchange, on the server's thread.
  using Outcome = std::function<void(const std::shared_ptr<Exchange>&)>;
  /// Runs on a thread of the pool, and may end early once a stop is asked for: then its outcome is dropped.
  using Work = std::function<Outcome(const std::stop_token&)>;

  /// `post`: onto the server's thread.
  ReadingPool(const WorkLimits& limits, std::function<void(std::function<void()>)> post);
  ~ReadingPool() { end(); }
  /// Drops what has not begun, stops what has and waits for it. Nothing is posted afterwards.
  void end();
  ReadingPool(const ReadingPool&) = delete;
  ReadingPool& operator=(const ReadingPool&) = delete;

  /// On the server's thread. False: too much waits already, of all or of `flow`. If the client leaves before the
  /// outcome, the work is dropped or stopped.
  [[nodiscard]] bool run(const std::string& flow, bool heavy, Work work, const std::shared_ptr<Exchange>& exchange);
  /// Makes a JSON answer and sends it. A long one is made in the pool, unless too much waits there. What `make` holds
  /// is let go of on the server's thread.
  void answer(const std::string& flow, bool is_long, std::function<std::string()> make, Headers headers,
              const std::shared_ptr<Exchange>& exchange);

 private:
  struct Task {
    Work work;
    std::stop_source stop;
  };
  void loop();
  void finish(WorkQueue::Id id, const Outcome& outcome);
  void cancel(WorkQueue::Id id);

  const std::function<void(std::function<void()>)> post_;
  // The server's thread's own: exchanges are not for others.
  std::unordered_map<WorkQueue::Id, std::shared_ptr<Exchange>> asked_;
  WorkQueue::Id last_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_;
  WorkQueue queue_;
  std::unordered_map<WorkQueue::Id, std::shared_ptr<Task>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;  ///< last: they use the others
};

}  // namespace moestro::orchestrator
