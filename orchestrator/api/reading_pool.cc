#include "orchestrator/api/reading_pool.h"

#include <pthread.h>

#include <optional>

namespace moestro::orchestrator {

ReadingPool::ReadingPool(const WorkLimits& limits, std::function<void(std::function<void()>)> post)
    : post_(std::move(post)), queue_(limits) {
  for (size_t i = 0; i < limits.threads; ++i) {
    threads_.emplace_back([this] { loop(); });
    pthread_setname_np(threads_.back().native_handle(), "reading");
  }
}

void ReadingPool::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (auto& [id, task] : tasks_) task->stop.request_stop();
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool ReadingPool::run(const std::string& flow, bool heavy, Work work, const std::shared_ptr<Exchange>& exchange) {
  const WorkQueue::Id id = ++last_;
  {
    const std::lock_guard lock(mutex_);
    if (!queue_.add(id, flow, heavy)) return false;
    tasks_[id] = std::make_shared<Task>(Task{std::move(work), {}});
  }
  asked_[id] = exchange;
  wake_.notify_one();
  exchange->on_gone([this, id] { cancel(id); });
  return true;
}

void ReadingPool::answer(const std::string& flow, bool is_long, std::function<std::string()> make, Headers headers,
                         const std::shared_ptr<Exchange>& exchange) {
  const Work work = [make = std::move(make), headers = std::move(headers)](const std::stop_token&) -> Outcome {
    return [make, headers, text = std::make_shared<std::string>(make())](const std::shared_ptr<Exchange>& to) {
      to->respond(200, "application/json", std::move(*text), headers);
    };
  };
  if (!is_long || !run(flow, /*heavy=*/false, work, exchange)) work({})(exchange);
}

void ReadingPool::cancel(WorkQueue::Id id) {
  const auto exchange = asked_.extract(id);
  std::shared_ptr<Task> dropped;
  const std::lock_guard lock(mutex_);
  const auto task = tasks_.find(id);
  if (task == tasks_.end()) return;
  task->second->stop.request_stop();
  if (!queue_.remove(id)) return;
  dropped = std::move(task->second);
  tasks_.erase(task);
}

void ReadingPool::finish(WorkQueue::Id id, const Outcome& outcome) {
  const auto asked = asked_.extract(id);
  if (asked) outcome(asked.mapped());
}

void ReadingPool::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    std::optional<WorkQueue::Id> id;
    wake_.wait(lock, [&] { return ending_ || (id = queue_.next()); });
    if (ending_) return;
    const std::shared_ptr<Task> task = tasks_.at(*id);
    lock.unlock();
    Outcome outcome = task->work(task->stop.get_token());
    task->work = nullptr;  // what it holds is large, and let go of here
    post_([this, id = *id, outcome = std::move(outcome)] { finish(id, outcome); });
    lock.lock();
    tasks_.erase(*id);
    queue_.done(*id);
    wake_.notify_all();  // its flow may have another one
  }
}

}  // namespace moestro::orchestrator
