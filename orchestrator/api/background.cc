#include "orchestrator/api/background.h"

namespace moestro::orchestrator {

Background::Background(size_t queued_max) : queued_max_(queued_max), thread_([this] { loop(); }) {}

Background::~Background() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    tasks_.clear();
  }
  wake_.notify_one();
  thread_.join();
}

bool Background::run(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_ || tasks_.size() >= queued_max_) return false;
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
  return true;
}

void Background::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (stop_) return;
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace moestro::orchestrator
