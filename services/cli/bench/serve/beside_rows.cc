// Interactive requests beside a batch job that fills the machine.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/cli/batch/batch_client.h"
#include "services/cli/bench/serve/completion_json.h"
#include "services/cli/bench/serve/table.h"
#include "services/cli/common/http_client.h"
#include "services/cli/common/json_text.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

constexpr int64_t kRequestsMax = 40;  ///< in a round
constexpr int64_t kProbes = 3;      ///< say how long one takes beside the job
constexpr double kSpacing = 1.5;    ///< times that, on average: seldom two at once
constexpr LengthRange kPrompt = {8, 128}, kAnswer = {8, 8};
constexpr int64_t kLinesPerRound = 4000;  ///< more than a job can do in a round
constexpr uint64_t kSaturated = 16;       ///< sequences of the job in the server before the load begins
constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::minutes kPatience{2};

/// A job of many lines; cancelled at its end.
class Job {
 public:
  static Result<std::unique_ptr<Job>> submit(const RowContext& context, const Served& served, uint64_t seed) {
    std::unique_ptr<Job> job(new Job(served.url));
    const auto file =
        std::filesystem::temp_directory_path() / ("moestro-bench-job-" + std::to_string(::getpid()) + ".jsonl");
    const Status written = write(context.options, served, seed, file);
    auto id = written.is_ok() ? job->client_.upload(file, [](uint64_t) {}) : Result<std::string>(written);
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    MOESTRO_RETURN_IF_ERROR(id.status());
    MOESTRO_ASSIGN_OR_RETURN(
        const json batch,
        job->client_.create({{"endpoint", "/v1/completions"}, {"completion_window", "24h"}, {"input_file_id", *id}}));
    job->id_ = text_or(batch, "id");
    return job;
  }
  ~Job() { (void)client_.cancel(id_); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Result<bool> goes_on() {
    MOESTRO_ASSIGN_OR_RETURN(const json batch, client_.batch(id_));
    const std::string status = text_or(batch, "status");
    return status == "validating" || status == "in_progress";
  }

 private:
  explicit Job(const Url& url) : client_(url) {}
  static Status write(const ServeBenchOptions& o, const Served& served, uint64_t seed,
                      const std::filesystem::path& file) {
    std::ofstream out(file);
    uint32_t index = 0;
    for (const Arrival& a :
         poisson_arrivals({.count = kLinesPerRound, .prompt = o.prompt, .output = o.output, .seed = seed})) {
      const std::string body =
          completion_body({.model = served.model, .max_tokens = a.output_tokens, .seed = index, .stream = false},
                          prompt_ids(a, index, served.vocab, seed));
      out << R"({"custom_id":")" << index++ << R"(","method":"POST","url":"/v1/completions","body":)" << body << "}\n";
    }
    return out.flush() ? Status::ok() : io_error("cannot write " + file.string());
  }
  BatchClient client_;
  std::string id_;
};

Status wait_until_full(const Url& url) {
  HttpClient client(url);
  for (const auto end = std::chrono::steady_clock::now() + kPatience; std::chrono::steady_clock::now() < end;
       std::this_thread::sleep_for(kLook)) {
    MOESTRO_ASSIGN_OR_RETURN(const HttpReply reply, client.get("/v1/moestro/status"));
    const auto status = parse_json(reply.body);
    if (status.is_ok() && status->is_object() && status->contains("sequences") &&
        count_or((*status)["sequences"], "running") >= kSaturated)
      return Status::ok();
  }
  return unavailable("the batch job did not fill the server within two minutes");
}

struct BesideFigures {
  std::vector<double> prefill, ttft, step, ratios, step_p50, ttft_p50;
  bool ended_early = false;
};

/// Requests of the same lengths each time, and prompts that are in no cache; one after the other where no rate is
/// given.
Result<LoadRun> interactive(const RowContext& context, LoadOptions& load, uint64_t lengths_seed, int64_t count,
                            double rate, const std::string& what) {
  ++load.seed;
  load.concurrency = std::isfinite(rate) ? 0 : 1;
  const auto arrivals =
      poisson_arrivals({.rate = rate, .count = count, .prompt = kPrompt, .output = kAnswer, .seed = lengths_seed});
  MOESTRO_ASSIGN_OR_RETURN(LoadRun run, row_load(context, load, arrivals, what));
  MOESTRO_RETURN_IF_ERROR(all_answered(run, what));
  return run;
}

/// Each request is held against two steps and the time that a prompt of its length takes alone.
double ratio_p99(const LoadRun& beside, const LoadRun& alone, double step) {
  std::vector<double> ratios;
  for (size_t i = 0; i < beside.requests.size(); ++i)
    ratios.push_back(beside.requests[i].ttft_s() / (2 * step + alone.requests[i].ttft_s()));
  return distribution(std::move(ratios)).p99;
}

Status round(const RowContext& context, const Served& served, LoadOptions& load, BesideFigures& f) {
  const uint64_t lengths_seed = load.seed + 1000;
  const int64_t requests = std::min(kRequestsMax, context.options.count);
  MOESTRO_ASSIGN_OR_RETURN(const LoadRun alone, interactive(context, load, lengths_seed, requests, kAllAtOnce,
                                                            "interactive, one at a time"));
  const LoadSummary idle = summarise(alone, {});
  MOESTRO_ASSIGN_OR_RETURN(const auto job, Job::submit(context, served, lengths_seed));
  context.say("interactive: waiting for the batch job to fill the server");
  MOESTRO_RETURN_IF_ERROR(wait_until_full(served.url));
  MOESTRO_ASSIGN_OR_RETURN(const LoadRun probes, interactive(context, load, lengths_seed, kProbes, kAllAtOnce,
                                                             "interactive during the batch job, one at a time"));
  const double rate = 1 / (kSpacing * summarise(probes, {}).e2e_s.p50);
  MOESTRO_ASSIGN_OR_RETURN(const LoadRun beside, interactive(context, load, lengths_seed, requests, rate,
                                                             "interactive during the batch job"));
  MOESTRO_ASSIGN_OR_RETURN(const bool full, job->goes_on());
  f.ended_early = f.ended_early || !full;
  const LoadSummary s = summarise(beside, {});
  f.prefill.push_back(idle.ttft_s.p50), f.ttft.push_back(s.ttft_s.p99), f.step.push_back(s.itl_s.p99);
  f.step_p50.push_back(s.itl_s.p50), f.ttft_p50.push_back(s.ttft_s.p50);
  f.ratios.push_back(ratio_p99(beside, alone, s.itl_s.p99));
  return Status::ok();
}

std::string ms(const std::vector<double>& seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", 1e3 * median(seconds));
  return text;
}

}  // namespace

Status add_beside_rows(const RowContext& context, std::vector<BenchRow>& rows) {
  ServeBenchOptions o = context.options;
  MOESTRO_ASSIGN_OR_RETURN(const auto box, start_box(box_of(o)));
  MOESTRO_ASSIGN_OR_RETURN(const Served served, ask_served(url_of(*box), ""));
  LoadOptions load = load_options(o, served);
  load.idle_connections = 0;
  MOESTRO_RETURN_IF_ERROR(warm_up(load, 8, served.limits));
  BesideFigures f;
  for (int64_t i = 0; i < context.rounds; ++i) MOESTRO_RETURN_IF_ERROR(round(context, served, load, f));
  BenchRow r{.what = "interactive during a saturating batch job: TTFT p99",
             .unit = "ms",
             .value = 1e3 * median(f.ttft),
             .baseline_name = "2 steps + its own prefill",
             .baseline = 1e3 * (2 * median(f.step) + median(f.prefill)),
             .ratio = median(f.ratios)};
  r.aim_kind = BenchRow::Aim::kAtMost, r.aim = 1;
  r.how = "the ratio: p99 of each request's own, with its own length's prefill; step p99 " + ms(f.step) + " (p50 " +
          ms(f.step_p50) + "): gaps between the tokens of the same requests; prefill p50 " + ms(f.prefill) +
          ": TTFT on the idle server; TTFT p50 " + ms(f.ttft_p50) + "; " +
          std::to_string(std::min(kRequestsMax, o.count)) + " requests a round, " + std::to_string(context.rounds) +
          " rounds";
  if (f.ended_early) r.missing = "the batch job was over before the interactive requests were";
  rows.push_back(std::move(r));
  return Status::ok();
}

}  // namespace moestro::cli
