#pragma once
// Records when each task ran. Executors write slices; sinks keep them in memory or in a Chrome trace file.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/lanes/task_graph.h"
#include "common/late_cause.h"
#include "common/status.h"

namespace moestro::lanes {

struct Slice {
  Task task;
  TaskId id = 0;
  Nanos begin{0}, end{0};
};

/// A stretch of time in which a link or a drive carried an expert, KV, a layer's dense weights, or what attention on
/// the host takes and gives, by its own account. A copy that was interrupted is several.
struct Transfer {
  Lane lane = Lane::kHostToDevice;
  int32_t layer = -1, expert = -1;
  int32_t micro_batch = -1;  ///< not of an expert, which is then -1
  uint64_t bytes = 0;        ///< the same
  TaskKind kind = TaskKind::kKvLoad;  ///< the same: of which task
  bool demand = false;  ///< a layer waited for it; false: a prefetch
  uint32_t copy = 0;    ///< the expert is now whole, for the copy-th time since the start; 0: it is not
  Nanos begin{0}, end{0};
};

/// Where an expert was when its layer's router chose it, and why it was not where it is computed.
struct Lateness {
  enum class From : uint8_t { kDram, kDrive };
  From from = From::kDrive;
  LateCause cause = LateCause::kNotForeseen;
};
std::string_view tier_name(Lateness::From from);

/// The compute lane had nothing to do until this expert, KV, or dense weights came, or what the host attended to.
struct Stall {
  int32_t layer = -1, expert = -1;  ///< expert -1: it was KV, `dense` or `host`
  Nanos begin{0}, end{0};
  Lateness why = {};  ///< filled in by Timeline::stall()
  bool dense = false;  ///< it was the layer's dense weights
  bool link = false;   ///< the same: over a device's link, not from the drive
  bool host = false;   ///< it was attention on the host, or a copy for it
};

/// What a timeline asks about the experts that a step uses. All calls come from the thread that runs the steps.
class ExpertArrivals {
 public:
  virtual ~ExpertArrivals() = default;
  /// Of an expert that was missing when its layer's router last chose it.
  virtual Lateness lateness(int32_t layer, int32_t expert) = 0;
  /// Transfer::copy of its last copy. 0: nothing copies it, and the reads of tasks are drawn.
  virtual uint32_t copy_of(int32_t layer, int32_t expert) = 0;
};

class Timeline {
 public:
  virtual ~Timeline() = default;
  virtual void begin_step(uint64_t plan) { (void)plan; }
  virtual void slice(const Slice& slice) = 0;
  virtual void end_step() {}
  virtual void transfer(const Transfer& transfer) { (void)transfer; }
  /// A task at `at` of this lane used an expert, which came with this copy (0: not by a copy).
  virtual void used(Lane lane, int32_t layer, int32_t expert, uint32_t copy, Nanos at) {
    (void)lane, (void)layer, (void)expert, (void)copy, (void)at;
  }
  /// Call this with layer, expert, begin and end where the compute lane has waited. The timeline finds out why.
  void stall(Stall stall) {
    if (arrivals_ != nullptr && stall.expert >= 0) stall.why = arrivals_->lateness(stall.layer, stall.expert);
    draw(stall);
  }
  /// May be null, and missing experts then count as not foreseen, and read from the drive. Outlives the timeline's
  /// last step.
  void set_arrivals(ExpertArrivals* arrivals) { arrivals_ = arrivals; }
  uint32_t copy_of(int32_t layer, int32_t expert) const {
    return arrivals_ == nullptr ? 0 : arrivals_->copy_of(layer, expert);
  }

 protected:
  virtual void draw(const Stall& stall) { (void)stall; }

 private:
  ExpertArrivals* arrivals_ = nullptr;
};

/// Chrome trace event JSON (the array form): a track per lane and one for stalls, a complete event per task, transfer
/// and stall, and an arrow from what brought an expert to its first use. Flushed at the end of each step, one whole
/// event per line. It can be read at any time: the format's closing bracket is optional, so viewers open the file of a
/// killed process too. docs/timeline.md says what each slice means.
class ChromeTrace final : public Timeline {
 public:
  /// A file of this name becomes FILE.old.
  static Result<std::unique_ptr<ChromeTrace>> create(const std::filesystem::path& path,
                                                     const std::string& process_name);
  ~ChromeTrace() override;
  ChromeTrace(const ChromeTrace&) = delete;
  ChromeTrace& operator=(const ChromeTrace&) = delete;

  void begin_step(uint64_t plan) override;
  void slice(const Slice& slice) override;
  void transfer(const Transfer& transfer) override;
  void used(Lane lane, int32_t layer, int32_t expert, uint32_t copy, Nanos at) override;
  void end_step() override;

 private:
  using ExpertOf = std::pair<int32_t, int32_t>;  ///< layer, expert
  ChromeTrace(int fd, int pid) : fd_(fd), pid_(pid) {}
  void draw(const Stall& stall) override;
  /// The event as far as its arguments; the caller appends the rest of them, the braces and the line's end.
  void event(std::string_view name, const char* category, int track, Nanos begin, Nanos end);
  void flow(char phase, int track, ExpertOf what, uint64_t copy, Nanos at);
  void append(const char* format, ...) __attribute__((format(printf, 2, 3)));
  void write_out();

  int fd_;
  int pid_;
  bool failed_ = false;  ///< the disk is full or gone: logged once, then the trace ends
  uint64_t plan_ = 0;
  uint64_t step_ = 0;
  std::vector<ExpertOf> read_;            ///< in this step by tasks, and not used yet
  std::map<ExpertOf, uint32_t> arrowed_;  ///< the copy to whose use the last arrow was drawn
  std::string buffer_;
};

}  // namespace moestro::lanes
