#include <fcntl.h>
#include <unistd.h>

#include <xxhash.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "common/json_escape.h"
#include "common/lanes/timeline.h"
#include "common/log.h"

namespace moestro::lanes {
namespace {

constexpr size_t kBufferBytes = 1 << 16;
constexpr int kStallTrack = kLaneCount;

double to_us(Nanos t) { return static_cast<double>(t.count()) / 1000.0; }

}  // namespace

std::string_view tier_name(Lateness::From from) { return from == Lateness::From::kDram ? "dram" : "drive"; }

Result<std::unique_ptr<ChromeTrace>> ChromeTrace::create(const std::filesystem::path& path,
                                                         const std::string& process_name) {
  // A worker that is started again keeps what its predecessor recorded until it was killed.
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) std::filesystem::rename(path, path.string() + ".old", ignored);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return invalid_argument(io_error("--timeline " + path.string(), errno).message());
  std::unique_ptr<ChromeTrace> trace(new ChromeTrace(fd, static_cast<int>(::getpid())));
  trace->buffer_.reserve(kBufferBytes + 1024);
  trace->append("[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"%s\"}},\n", trace->pid_,
                json_escaped(process_name).c_str());
  for (int track = 0; track <= kStallTrack; ++track)
    trace->append("{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n",
                  trace->pid_, track,
                  track == kStallTrack ? "stall" : std::string(lane_name(static_cast<Lane>(track))).c_str());
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
  if (buffer_.size() >= kBufferBytes && buffer_.back() == '\n') write_out();
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
  read_.clear();
}

/// Both ends of an arrow compute the same id. It is a hash because viewers put all processes' ids together.
void ChromeTrace::flow(char phase, int track, ExpertOf what, uint64_t copy, Nanos at) {
  const int64_t ends[] = {pid_, what.first, what.second, static_cast<int64_t>(copy)};
  append(
      "{\"name\":\"arrival\",\"cat\":\"expert\",\"ph\":\"%c\",%s\"id\":\"0x%llx\",\"pid\":%d,\"tid\":%d,"
      "\"ts\":%.3f},\n",
      phase, phase == 'f' ? "\"bp\":\"e\"," : "", static_cast<unsigned long long>(XXH3_64bits(ends, sizeof ends)), pid_,
      track, to_us(at));
}

void ChromeTrace::event(std::string_view name, const char* category, int track, Nanos begin, Nanos end) {
  append(
      "{\"name\":\"%.*s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
      "\"args\":{\"plan\":%llu,",
      static_cast<int>(name.size()), name.data(), category, pid_, track, to_us(begin), to_us(end - begin),
      static_cast<unsigned long long>(plan_));
}

void ChromeTrace::slice(const Slice& s) {
  if (failed_) return;
  const ExpertOf what{s.task.layer, s.task.expert};
  const bool is_read = s.task.kind == TaskKind::kExpertRead;
  const uint32_t copy = what.second >= 0 && (is_read || s.task.kind == TaskKind::kExpert)
                            ? copy_of(what.first, what.second)
                            : 0;
  if (is_read && copy > 0) return;  // a wait for the link, which draws its transfers itself
  const int track = static_cast<int>(s.task.lane);
  event(task_name(s.task.kind), is_compute(s.task.lane) ? "work" : "wait", track, s.begin, s.end);
  append("\"layer\":%d,\"expert\":%d}},\n", what.first, what.second);
  if (is_read) {
    read_.push_back(what);
    flow('s', track, what, step_, s.begin);
  } else if (s.task.kind == TaskKind::kExpert && what.second >= 0) {
    used(s.task.lane, what.first, what.second, copy, s.begin);
  }
}

void ChromeTrace::transfer(const Transfer& t) {
  if (failed_) return;
  const int track = static_cast<int>(t.lane);
  if (t.expert < 0) {
    const bool hidden = t.kind == TaskKind::kHiddenLoad || t.kind == TaskKind::kQkvSend;
    const bool dense = t.kind == TaskKind::kWeightRead;
    event(dense ? "copy weights" : task_name(t.kind), hidden ? "hidden" : dense ? "dense" : "kv", track, t.begin,
          t.end);
    append("\"layer\":%d,\"micro_batch\":%d,\"bytes\":%llu}},\n", t.layer, t.micro_batch,
           static_cast<unsigned long long>(t.bytes));
    return;
  }
  event(t.lane == Lane::kStoreRead ? "read expert" : "copy expert", t.demand ? "demand" : "prefetch", track, t.begin,
        t.end);
  append("\"layer\":%d,\"expert\":%d}},\n", t.layer, t.expert);
  if (t.copy > 0) flow('s', track, {t.layer, t.expert}, t.copy, t.begin);
}

void ChromeTrace::used(Lane lane, int32_t layer, int32_t expert, uint32_t copy, Nanos at) {
  if (failed_) return;
  const ExpertOf what{layer, expert};
  if (copy > 0) {
    if (std::exchange(arrowed_[what], copy) != copy) flow('f', static_cast<int>(lane), what, copy, at);
  } else if (std::erase(read_, what) > 0) {
    flow('f', static_cast<int>(lane), what, step_, at);
  }
}

void ChromeTrace::draw(const Stall& s) {
  if (failed_) return;
  event("stall", "stall", kStallTrack, s.begin, s.end);
  if (s.dense)
    return append("\"layer\":%d,\"tier\":\"%s\",\"cause\":\"dense weights\"}},\n", s.layer,
                  s.link ? "dram" : "drive");
  if (s.expert < 0)
    return append("\"layer\":%d,\"tier\":\"dram\",\"cause\":\"%s\"}},\n", s.layer, s.host ? "host attention" : "KV");
  append("\"layer\":%d,\"expert\":%d,\"tier\":\"%s\",\"cause\":\"%s\"}},\n", s.layer, s.expert,
         tier_name(s.why.from).data(), late_cause_name(s.why.cause).data());
}

void ChromeTrace::end_step() { write_out(); }

}  // namespace moestro::lanes
