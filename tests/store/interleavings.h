#pragma once
// Runs two programs, one step at a time, in every order, by running them repeatedly with other choices.

#include <sched.h>

#include <array>
#include <cstddef>
#include <functional>
#include <semaphore>
#include <utility>
#include <vector>

namespace moestro::store {

/// The choices of one execution after the other, depth first.
class Orders {
 public:
  size_t choose(size_t count) {
    if (at_ == path_.size()) path_.emplace_back(0, count);
    return path_[at_++].first;
  }
  /// Another execution is left; its choices begin anew.
  bool next() {
    at_ = 0;
    while (!path_.empty() && ++path_.back().first == path_.back().second) path_.pop_back();
    return !path_.empty();
  }

 private:
  std::vector<std::pair<size_t, size_t>> path_;  ///< chosen, of how many
  size_t at_ = 0;
};

/// This thread and those that it will start stay on the core where it is: threads that take turns wake each other
/// sooner there than across two. On a busy machine pin_protocol_test took 26 s instead of 226 s.
inline void stay_on_one_core() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  (void)sched_setaffinity(0, sizeof one, &one);  // refused: slower
}

/// One execution: whose step is next. Each of the two runs on a thread of its own, and only while it has the turn; 0
/// has it first.
class Turns {
 public:
  /// `switches_max`: how often the turn passes before the one that has it has ended. `happen`: what else may happen
  /// between two steps, for as long as `may_happen` says so.
  Turns(Orders& orders, int switches_max, std::function<bool()> may_happen, std::function<void()> happen)
      : orders_(orders),
        switches_left_(switches_max),
        may_happen_(std::move(may_happen)),
        happen_(std::move(happen)) {}

  /// Before each step of `me`. Returns when it is to be taken.
  void step(size_t me) {
    while (true) {
      const bool pass = !ended_[1 - me] && switches_left_ > 0, other = may_happen_();
      const size_t choice = pass || other ? orders_.choose(1 + (pass ? 1 : 0) + (other ? 1 : 0)) : 0;
      if (choice == 0) return;
      if (other && choice == 1) {
        happen_();
        continue;
      }
      if (!pass) return;  // the clock has taken this execution elsewhere than the one whose choices it repeats
      --switches_left_;
      return pass_turn(me);
    }
  }
  /// Around all of what `me` does. end(0) returns when the other has ended, too.
  void begin(size_t me) {
    if (me == 1) turn_[1].acquire();
  }
  void end(size_t me) {
    const bool last = ended_[1 - me];
    ended_[me] = true;
    if (me == 1) return turn_[0].release();
    if (last) return;
    turn_[1].release();
    turn_[0].acquire();
  }

 private:
  void pass_turn(size_t me) {
    turn_[1 - me].release();
    turn_[me].acquire();
  }
  Orders& orders_;
  int switches_left_;
  const std::function<bool()> may_happen_;
  const std::function<void()> happen_;
  std::array<bool, 2> ended_{};
  std::array<std::binary_semaphore, 2> turn_{std::binary_semaphore(0), std::binary_semaphore(0)};
};

}  // namespace moestro::store
