#pragma once
// Records when each task ran. Executors write slices; sinks keep them in memory or in a Chrome trace file.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/lanes/task_graph.h"
#include "common/status.h"

namespace moestro::lanes {

struct Slice {
  Task task;
  TaskId id = 0;
  Nanos begin{0}, end{0};
};

class Timeline {
 public:
  virtual ~Timeline() = default;
  virtual void begin_step(uint64_t plan) { (void)plan; }
  virtual void slice(const Slice& slice) = 0;
  virtual void end_step() {}
};

/// Keeps every slice in memory, for forecasts and tests.
class RecordedTimeline final : public Timeline {
 public:
  void slice(const Slice& slice) override { slices_.push_back(slice); }
  const std::vector<Slice>& slices() const { return slices_; }

 private:
  std::vector<Slice> slices_;
};

/// Chrome trace event JSON (the array form): one track per lane, one complete event per task, an arrow from an expert's
/// read to its use. Flushed at the end of each step, one whole event per line. It can be read at any time: the format's
/// closing bracket is optional, so viewers open the file of a killed process too.
class ChromeTrace final : public Timeline {
 public:
  static Result<std::unique_ptr<ChromeTrace>> create(const std::filesystem::path& path,
                                                     const std::string& process_name);
  ~ChromeTrace() override;
  ChromeTrace(const ChromeTrace&) = delete;
  ChromeTrace& operator=(const ChromeTrace&) = delete;

  void begin_step(uint64_t plan) override;
  void slice(const Slice& slice) override;
  void end_step() override;

 private:
  ChromeTrace(int fd, int pid) : fd_(fd), pid_(pid) {}
  void flow(const Slice& slice, char phase, Nanos at);
  void append(const char* format, ...) __attribute__((format(printf, 2, 3)));
  void write_out();

  int fd_;
  int pid_;
  bool failed_ = false;  ///< the disk is full or gone: logged once, then the trace ends
  uint64_t plan_ = 0;
  uint64_t step_ = 0;
  std::string buffer_;
};

}  // namespace moestro::lanes
