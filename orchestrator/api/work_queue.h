#pragma once
// Who is next for a few threads that do long work for many clients. A policy without threads.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

namespace moestro::orchestrator {

struct WorkLimits {
  size_t threads = 2;
  size_t queued_max = 256, queued_of_one_max = 64;
};

/// Flows take turns. A flow never has all threads, and neither has heavy work: one is left for what others ask
/// meanwhile. (Of one thread it is all.)
class WorkQueue {
 public:
  using Id = uint64_t;
  explicit WorkQueue(const WorkLimits& limits);

  /// False: it, or its flow, has as many waiting as it may.
  [[nodiscard]] bool add(Id id, const std::string& flow, bool heavy);
  /// The next one to run, if one may; it runs until done().
  std::optional<Id> next();
  void done(Id id);
  /// Whether it waited: it will not run.
  bool remove(Id id);

 private:
  struct Task {
    Id id;
    bool heavy;
  };
  struct Flow {
    std::string name;
    std::deque<Task> waiting;
    size_t running = 0;
  };
  using Flows = std::list<Flow>;
  void forget_if_empty(Flows::iterator flow);

  const WorkLimits limits_;
  const size_t of_one_max_;  ///< threads for one flow, and for heavy work
  Flows flows_;              ///< the next one first
  std::unordered_map<std::string, Flows::iterator> by_name_;
  struct Place {
    Flows::iterator flow;
    bool heavy = false, running = false;
  };
  std::unordered_map<Id, Place> places_;
  size_t waiting_ = 0, heavy_running_ = 0;
};

}  // namespace moestro::orchestrator
