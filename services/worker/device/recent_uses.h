#pragma once
// Measures what the device's policy and predictor are worth while it serves: keeps a window of the last uses, which a
// thread of the lowest priority replays with LRU and with Belady's oracle (common/tier/use_window.h).
//
// There is one window. The engine's thread fills it. When it is full, it belongs to the replaying thread until that is
// done. The next window begins after a pause, so that replays take no more than a given share of a core. One word says
// whose turn it is, so the engine never waits for a thread that may not run for a long time.

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/tier/use_window.h"

namespace moestro::device {

struct RecentUsesOptions {
  size_t uses = 0;            ///< uses by decoding in a window; 0: eight per slot, within limits
  double share_max = 0.002;   ///< of a core, for replays; 0: no pause
};

class RecentUses {
 public:
  /// `clock` outlives it.
  RecentUses(const tier::TierOptions& tier, const Clock& clock, const RecentUsesOptions& options = {});
  ~RecentUses();
  RecentUses(const RecentUses&) = delete;
  RecentUses& operator=(const RecentUses&) = delete;

  // For the engine's thread; nothing here waits or allocates.

  void begin_step(bool scan);
  /// Like DeviceTier::routed, with its results.
  void routed(std::span<const tier::DeviceTier::Wanted> wanted, std::span<const tier::Found> found);
  /// The result of the last window, once; uses 0: no new result.
  tier::WindowHits take();
  /// Whether a window is being filled.
  bool recording() const { return recording_; }
  /// Whether one is being replayed, so that a result will come.
  bool replaying() const { return turn_.load(std::memory_order_relaxed) == kReplaying; }
  /// Processor time of all finished replays.
  Nanos replays_took() const { return replays_took_; }
  /// Uses by decoding in a window.
  size_t window_uses() const { return uses_max_; }

 private:
  /// The owner of window_, result_ and took_: the replaying thread during kReplaying, otherwise the engine.
  static constexpr uint32_t kRecording = 0, kReplaying = 1, kReplayed = 2, kOver = 3;
  void begin_window();
  void hand_over();
  void look_at_result();
  void replay_windows();

  const tier::TierOptions tier_;
  const Clock& clock_;
  const RecentUsesOptions options_;
  const size_t uses_max_, all_uses_max_;

  std::atomic<uint32_t> turn_{kRecording};
  tier::UseWindow window_;
  tier::WindowHits result_;
  Nanos took_{0};

  // The engine's thread only.
  std::vector<uint64_t> last_use_;  ///< by key, of decoding
  uint64_t uses_ = 0;
  size_t decoded_ = 0;              ///< uses of decoding in the window
  bool recording_ = false, scan_ = false, begins_step_ = false;
  Nanos rests_until_{0};
  Nanos replays_took_{0};
  tier::WindowHits untaken_;

  std::thread thread_;              ///< last: it uses all of the above
};

}  // namespace moestro::device
