#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "common/json_escape.h"
#include "common/lanes/timeline.h"
#include "common/log.h"

namespace moestro::lanes {
namespace {

constexpr size_t kBufferBytes = 1 << 16;

double to_us(Nanos t) { return static_cast<double>(t.count()) / 1000.0; }

}  // namespace

Result<std::unique_ptr<ChromeTrace>> ChromeTrace::create(const std::filesystem::path& path,
                                                         const std::string& process_name) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return invalid_argument(io_error("--timeline " + path.string(), errno).message());
  std::unique_ptr<ChromeTrace> trace(new ChromeTrace(fd, static_cast<int>(::getpid())));
  trace->buffer_.reserve(kBufferBytes + 1024);
  trace->append("[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"%s\"}},\n", trace->pid_,
                json_escaped(process_name).c_str());
  for (int lane = 0; lane < kLaneCount; ++lane)
    trace->append("{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n",
                  trace->pid_, lane, std::string(lane_name(static_cast<Lane>(lane))).c_str());
  trace->write_out();
  if (trace->failed_) return io_error("timeline " + path.string() + ": cannot write");
  return trace;
}

ChromeTrace::~ChromeTrace() {
  // A last event without a comma, so that the closed file is strict JSON.
  append("{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"sort_index\":0}}\n]\n", pid_);
  write_out();
  ::close(fd_);
}

void ChromeTrace::append(const char* format, ...) {
  char line[768];
  va_list args;
  va_start(args, format);
  const int length = std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (length > 0 && length < static_cast<int>(sizeof line)) buffer_.append(line, static_cast<size_t>(length));
  if (buffer_.size() >= kBufferBytes) write_out();
}

void ChromeTrace::write_out() {
  size_t done = 0;
  while (!failed_ && done < buffer_.size()) {
    const ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      failed_ = true;
      log::warn("timeline: write failed ({}); no more slices are recorded", std::strerror(errno));
    }
  }
  buffer_.clear();
}

void ChromeTrace::begin_step(uint64_t plan) {
  plan_ = plan;
  ++step_;
}

void ChromeTrace::flow(const Slice& slice, char phase, Nanos at) {
  // A flow's id joins a read with the use of the same expert in the same step.
  const uint64_t id =
      (step_ << 32) ^ (static_cast<uint64_t>(slice.task.layer) << 16) ^ static_cast<uint64_t>(slice.task.expert);
  append("{\"name\":\"arrival\",\"cat\":\"expert\",\"ph\":\"%c\",%s\"id\":%llu,\"pid\":%d,\"tid\":%d,\"ts\":%.3f},\n",
         phase, phase == 'f' ? "\"bp\":\"e\"," : "", static_cast<unsigned long long>(id), pid_,
         static_cast<int>(slice.task.lane), to_us(at));
}

void ChromeTrace::slice(const Slice& s) {
  if (failed_) return;
  const std::string_view name = task_name(s.task.kind);
  append(
      "{\"name\":\"%.*s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
      "\"args\":{\"plan\":%llu,\"layer\":%d,\"expert\":%d}},\n",
      static_cast<int>(name.size()), name.data(), is_compute(s.task.lane) ? "work" : "wait", pid_,
      static_cast<int>(s.task.lane), to_us(s.begin), to_us(s.end - s.begin), static_cast<unsigned long long>(plan_),
      s.task.layer, s.task.expert);
  if (s.task.kind == TaskKind::kExpertRead) flow(s, 's', s.begin);
  if (s.task.kind == TaskKind::kExpert) flow(s, 'f', s.begin);
}

void ChromeTrace::end_step() { write_out(); }

}  // namespace moestro::lanes
