#include "services/worker/device/recent_uses.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "common/shm/futex.h"

namespace moestro::device {
namespace {

constexpr size_t kUsesMin = 1024, kUsesMax = size_t{1} << 16;
constexpr size_t kUsesPerSlot = 8;  ///< long enough that most of what slots hold has been decided in the window
constexpr Nanos kLookAgain = std::chrono::minutes(10);  ///< it is woken
constexpr size_t kWithPrompts = 2;  ///< room for uses by prompts: as many again

size_t window_of(const tier::TierOptions& tier, const RecentUsesOptions& options) {
  if (options.uses > 0) return options.uses;
  return std::clamp(kUsesPerSlot * static_cast<size_t>(tier.slots), kUsesMin, kUsesMax);
}

Nanos thread_cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + Nanos(now.tv_nsec);
}

}  // namespace

RecentUses::RecentUses(const tier::TierOptions& tier, const Clock& clock, const RecentUsesOptions& options)
    : tier_(tier),
      clock_(clock),
      options_(options),
      uses_max_(window_of(tier, options)),
      all_uses_max_(kWithPrompts * uses_max_) {
  const auto keys = static_cast<size_t>(tier.layers) * static_cast<size_t>(tier.experts);
  last_use_.resize(keys);
  window_.used_before.resize(keys);
  window_.uses.reserve(all_uses_max_ + static_cast<size_t>(tier.experts));
  window_.visits.reserve(window_.uses.capacity());
  thread_ = std::thread([this] { replay_windows(); });
}

RecentUses::~RecentUses() {
  turn_.store(kOver);
  shm::futex_wake_all(turn_);
  thread_.join();
}

void RecentUses::begin_step(bool scan) {
  look_at_result();
  if (!recording_ && turn_.load(std::memory_order_relaxed) == kRecording && clock_.now() >= rests_until_)
    begin_window();
  scan_ = scan, begins_step_ = true;
}

void RecentUses::begin_window() {
  window_.visits.clear(), window_.uses.clear();
  window_.used_before = last_use_;
  decoded_ = 0;
  recording_ = true;
}

void RecentUses::routed(std::span<const tier::DeviceTier::Wanted> wanted, std::span<const tier::Found> found) {
  if (!scan_)
    for (const auto& w : wanted) last_use_[w.key] = ++uses_;
  if (!recording_ || wanted.empty()) return;
  window_.visits.push_back({static_cast<uint32_t>(window_.uses.size()), scan_, std::exchange(begins_step_, false)});
  for (size_t i = 0; i < wanted.size(); ++i)
    window_.uses.push_back({wanted[i].key, wanted[i].weight, found[i] == tier::Found::kHit});
  if (!scan_) decoded_ += wanted.size();
  if (decoded_ >= uses_max_ || window_.uses.size() >= all_uses_max_) hand_over();
}

void RecentUses::hand_over() {
  recording_ = false;
  if (decoded_ == 0) return;  // prompts alone: nothing of it would count
  turn_.store(kReplaying, std::memory_order_release);
  shm::futex_wake_all(turn_);
}

void RecentUses::look_at_result() {
  if (turn_.load(std::memory_order_acquire) != kReplayed) return;
  untaken_ = result_;
  replays_took_ += took_;
  if (options_.share_max > 0)
    rests_until_ = clock_.now() + std::chrono::duration_cast<Nanos>(took_ / options_.share_max);
  turn_.store(kRecording, std::memory_order_relaxed);
}

tier::WindowHits RecentUses::take() {
  look_at_result();
  return std::exchange(untaken_, {});
}

void RecentUses::replay_windows() {
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);  // of this thread; where it is refused the pauses keep it out of the way
  uint32_t turn = turn_.load(std::memory_order_acquire);
  while (turn != kOver) {
    if (turn == kReplaying) {
      const Nanos begin = thread_cpu_time();
      result_ = tier::hits_of(window_, tier_, [this] { return turn_.load(std::memory_order_relaxed) != kOver; });
      took_ = thread_cpu_time() - begin;
      turn_.compare_exchange_strong(turn, kReplayed, std::memory_order_release, std::memory_order_acquire);
    } else {
      shm::futex_wait(turn_, turn, kLookAgain);
    }
    turn = turn_.load(std::memory_order_acquire);
  }
}

}  // namespace moestro::device
