#include "orchestrator/history_shelf.h"

#include <future>
#include <memory>

#include "common/log.h"

namespace moestro::orchestrator {

std::vector<std::byte> HistoryShelf::load(StateStore& state) {
  auto bytes = state.blob(name_);
  unread_ = !bytes.is_ok();
  if (!bytes.is_ok())
    log::warn("history: the checkpoint cannot be read, and the history starts empty: {}", bytes.status().message());
  return bytes.is_ok() && *bytes ? std::move(**bytes) : std::vector<std::byte>();
}

void HistoryShelf::open(BatchRunner& runner, ControlPlane& control) {
  const std::lock_guard lock(mutex_);
  runner_ = &runner, control_ = &control;
}

void HistoryShelf::keep(std::vector<std::byte> checkpoint) {
  const std::lock_guard lock(mutex_);
  if (runner_ == nullptr) return;
  runner_->ask([this, runner = runner_, control = control_, bytes = std::move(checkpoint)] {
    control->history_kept(store(runner->state(), bytes));
  });
}

/// What was learned in a few minutes must not replace what was learned before and could not be read.
Status HistoryShelf::store(StateStore& state, const std::vector<std::byte>& checkpoint) {
  if (unread_) {
    MOESTRO_ASSIGN_OR_RETURN(const auto former, state.blob(name_));
    if (former)
      return unavailable(
          "the one of before could not be read at the start, and stays; restart the orchestrator to use it");
    unread_ = false;
  }
  return state.put_blob(name_, checkpoint);
}

void HistoryShelf::close(std::chrono::milliseconds limit) {
  control_->keep_history_now(limit);  // not under the lock: it calls keep()
  BatchRunner* runner = nullptr;
  {
    const std::lock_guard lock(mutex_);
    runner = std::exchange(runner_, nullptr);
  }
  const auto kept = std::make_shared<std::promise<void>>();
  runner->ask([kept] { kept->set_value(); });
  if (kept->get_future().wait_for(limit) != std::future_status::ready)
    log::warn("history: its last checkpoint may not be kept");
}

}  // namespace moestro::orchestrator
