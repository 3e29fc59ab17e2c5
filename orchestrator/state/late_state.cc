#include "orchestrator/state/late_state.h"

#include <algorithm>

#include "common/log.h"

namespace moestro::orchestrator {

namespace {
constexpr std::chrono::seconds kPauseMax{30};  ///< a damaged file is read to its end each time
}

bool may_come_later(const Status& why) { return why.code() == Code::kExhausted || why.code() == Code::kCorrupt; }

LateState::LateState(Open open, Status why, std::chrono::milliseconds pause_first)
    : open_(std::move(open)), why_(std::move(why)), pause_(pause_first), try_at_(Clock::now() + pause_) {}

Result<StateStore*> LateState::there() {
  if (state_) return state_.get();
  if (Clock::now() < try_at_) return why_;
  auto opened = open_();
  if (!opened.is_ok()) {
    why_ = opened.status();
    pause_ = std::min<Clock::duration>(2 * pause_, kPauseMax);
    try_at_ = Clock::now() + pause_;
    return why_;
  }
  log::info("the state could be opened: files and batches are served");
  state_ = std::move(*opened);
  return state_.get();
}

}  // namespace moestro::orchestrator
