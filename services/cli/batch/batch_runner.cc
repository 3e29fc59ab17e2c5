#include "services/cli/batch/batch_runner.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "services/cli/batch/batch_input.h"
#include "services/cli/batch/batch_results.h"
#include "services/cli/common/http_client.h"
#include "services/cli/common/json_text.h"

namespace moestro::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

bool may_pass(int status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

/// Everything but `options_` and `stop_` is guarded by mutex_.
class Run {
 public:
  Run(const BatchOptions& options, const std::atomic<bool>& stop, BatchInput input, BatchResults results,
      BatchReport& report)
      : options_(options),
        stop_(stop),
        input_(std::move(input)),
        results_(std::move(results)),
        report_(report) {}

  Status run(const BatchProgress& progress) {
    const uint64_t left = report_.lines - report_.done_before;
    const auto threads = std::clamp<uint64_t>(left, 0, static_cast<uint64_t>(options_.concurrency));
    began_ = last_finished_ = Clock::now();
    running_ = threads;
    std::vector<std::thread> pool;
    for (uint64_t i = 0; i < threads; ++i) pool.emplace_back([this] { work(); });
    watch(progress);
    for (std::thread& thread : pool) thread.join();
    return status_;
  }

 private:
  void watch(const BatchProgress& progress) {
    std::unique_lock lock(mutex_);
    while (running_ > 0) {
      changed_.wait_for(lock, milliseconds(100));
      if (stop_) changed_.notify_all();  // wakes those that pause
      report_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
      progress(report_);
    }
  }

  void work() {
    HttpClient client(options_.url, HttpLimits{milliseconds(5000), options_.answer_max, 256u << 20}, options_.access);
    std::unique_lock lock(mutex_);
    while (!ending()) {
      Result<std::optional<BatchLine>> line = next_undone();
      if (!line.is_ok()) fail(line.status());
      if (!line.is_ok() || !line->has_value()) break;
      lock.unlock();
      const Result<HttpReply> reply = send(client, **line);
      lock.lock();
      if (!reply.is_ok()) {
        if (reply.status().code() != Code::kCancelled) fail(reply.status());
        break;
      }
      finish(**line, *reply);
    }
    --running_;
    changed_.notify_all();
  }

  bool ending() const { return stop_ || !status_.is_ok(); }

  void fail(const Status& status) {
    if (status_.is_ok()) status_ = status;
    changed_.notify_all();
  }

  Result<std::optional<BatchLine>> next_undone() {
    for (;;) {
      Result<std::optional<BatchLine>> line = input_.next();
      if (!line.is_ok() || !line->has_value() || !results_.done().contains((*line)->custom_id)) return line;
    }
  }

  /// Until the server has said something final about the line.
  Result<HttpReply> send(HttpClient& client, const BatchLine& line) {
    for (int tries = 1;; ++tries) {
      const Result<HttpReply> reply = client.post(line.path, line.body);
      // No answer to the line: with the right key it may get one.
      if (reply.is_ok() && reply->status == 401) return answered_with(reply->status, reply->body);
      if (reply.is_ok() && !may_pass(reply->status)) return reply;
      if (!reply.is_ok() && reply.status().code() != Code::kUnavailable) return reply;
      const milliseconds pause =
          retry_pause(options_, tries, line.number, reply.is_ok() ? reply->retry_after_s : 0);
      const Status why =
          reply.is_ok()
              ? unavailable("status " + std::to_string(reply->status) + ": " + error_message(reply->body))
              : reply.status();
      std::unique_lock lock(mutex_);
      ++report_.retries;
      report_.away = reply.is_ok() ? "" : why.message();
      if (Clock::now() - last_finished_ > options_.patience)
        return why.with_context("gave up (run the same command to go on)");
      changed_.wait_for(lock, pause, [this] { return ending(); });
      if (ending()) return cancelled("stopped");
    }
  }

  void finish(const BatchLine& line, const HttpReply& reply) {
    const BatchResult result = make_batch_result(line.number, line.custom_id, reply);
    const Status status = results_.append(result);
    if (!status.is_ok()) return fail(status);
    last_finished_ = Clock::now();
    report_.away.clear();
    ++report_.done;
    report_.failed += result.failed ? 1 : 0;
    report_.prompt_tokens += result.prompt_tokens;
    report_.completion_tokens += result.completion_tokens;
  }

  const BatchOptions& options_;
  const std::atomic<bool>& stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  BatchInput input_;
  BatchResults results_;
  BatchReport& report_;
  Status status_;
  uint64_t running_ = 0;
  Clock::time_point began_, last_finished_;
};

}  // namespace

milliseconds retry_pause(const BatchOptions& options, int tries, uint64_t line_number, double retry_after_s) {
  milliseconds pause = options.pause_first;
  for (int i = 1; i < tries && pause < options.pause_max; ++i) pause *= 2;
  pause = std::min(pause, options.pause_max);
  // Half to all of it, by a hash of the line's number.
  const uint64_t spread = (line_number * 0x9E3779B97F4A7C15ull) >> 48;
  pause = pause / 2 + milliseconds(pause.count() * static_cast<int64_t>(spread) / (2 * 65536));
  return std::max(pause, milliseconds(static_cast<int64_t>(retry_after_s * 1000)));
}

Status run_batch(const BatchOptions& options, const std::atomic<bool>& stop, const BatchProgress& progress,
                 BatchReport& report) {
  std::error_code error;
  if (std::filesystem::equivalent(options.input, options.output, error))
    return invalid_argument("output " + options.output.string() + " is the input itself");
  MOESTRO_ASSIGN_OR_RETURN(const auto numbers, survey_batch(options.input));
  MOESTRO_ASSIGN_OR_RETURN(BatchInput input, BatchInput::open(options.input));
  MOESTRO_ASSIGN_OR_RETURN(BatchResults results, BatchResults::open(options.output));
  report = BatchReport{};
  report.lines = numbers.size();
  report.was_torn = results.was_torn();
  for (const auto& [custom_id, failed] : results.done()) {
    if (!numbers.contains(custom_id)) {
      ++report.foreign;
      continue;
    }
    ++report.done_before;
    report.failed += failed ? 1 : 0;
  }
  return Run(options, stop, std::move(input), std::move(results), report).run(progress);
}

}  // namespace moestro::cli
