#pragma once
// What the device's policy and predictor are worth while it serves: keeps a window of the last uses, and has a thread
// of the lowest priority replay it with LRU and with Belady's oracle (common/tier/use_window.h).
//
// There is one window. The engine's thread fills it; when it is full it belongs to the replaying thread until that is
// done; then the next is begun, after so long a pause that the replays take no more than a given share of a core. Whose
// turn it is lies in one word, so that the engine never waits for a thread that may not run for long.

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/tier/use_window.h"

namespace moestro::device {

struct RecentUsesOptions {
  size_t uses = 0;            ///< of decoding, in a window; 0: eight a slot, within limits
  double share_max = 0.002;   ///< of a core, for replays; 0: no pause
};

class RecentUses {
 public:
  /// `clock` outlives it.
  RecentUses(const tier::TierOptions& tier, const Clock& clock, const RecentUsesOptions& options = {});
  ~RecentUses();
  RecentUses(const RecentUses&) = delete;
  RecentUses& operator=(const RecentUses&) = delete;

  // By the engine's thread; nothing here waits, or takes memory.

  void begin_step(bool scan);
  /// As DeviceTier::routed, with what it has found.
  void routed(std::span<const tier::DeviceTier::Wanted> wanted, std::span<const tier::Found> found);
  /// What the last window came to, once; uses 0: nothing new.
  tier::WindowHits take();
  /// A window is being filled.
  bool recording() const { return recording_; }
  /// Processor time of all replays that were looked at.
  Nanos replays_took() const { return replays_took_; }
  /// Of decoding, in a window.
  size_t window_uses() const { return uses_max_; }

 private:
  /// Whose window_, result_ and took_ are: the replaying thread's while kReplaying, else the engine's.
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
