#include "orchestrator/api/request_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "orchestrator/api/metric_text.h"

namespace moestro::orchestrator {

namespace {
const prometheus::Histogram::BucketBoundaries kSeconds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                       1,     2.5,    5,     10,   30,    60,   120, 300,  600};

constexpr std::array kResults{"ok", "error", "cancelled", "refused"};

nlohmann::json histogram_json(const prometheus::Histogram& of) {
  const auto histogram = of.Collect().histogram;
  nlohmann::json counts = nlohmann::json::array();
  uint64_t before = 0;
  for (const auto& bucket : histogram.bucket)
    counts.push_back(bucket.cumulative_count - std::exchange(before, bucket.cumulative_count));
  return {{"bounds", kSeconds},
          {"counts", std::move(counts)},
          {"sum", histogram.sample_sum},
          {"count", histogram.sample_count}};
}

/// Families with one sample, which has no label.
struct Figures {
  MetricText& text;

  template <typename Number>
  void counter(const char* name, const char* help, Number value) {
    text.counter(name, help).sample(static_cast<double>(value));
  }
  template <typename Number>
  void gauge(const char* name, const char* help, Number value) {
    text.gauge(name, help).sample(static_cast<double>(value));
  }
  void seconds(const char* name, const char* help, uint64_t us) {
    counter(name, help, static_cast<double>(us) * 1e-6);
  }
};

void add_steps(Figures f, const ControlSnapshot& c) {
  f.counter("moestro_generated_tokens_total", "Tokens sampled.", c.sampled_tokens);
  f.counter("moestro_steps_total", "Plans that workers have computed.", c.plans);
  f.seconds("moestro_step_seconds_total", "Time that workers spent on plans.", c.step_us);
  f.seconds("moestro_stall_seconds_total",
            "Of it, time in which a worker waited for experts, dense weights or KV.", c.stall_us);
  f.counter("moestro_step_parks_total",
            "Breaks in steps of batches, in which interactive requests were computed.", c.parks);
  f.seconds("moestro_step_parked_seconds_total",
            "Time of these breaks. It is in no step's time but those of the requests.", c.parked_us);
  f.counter("moestro_expert_hits_total", "Experts that were resident when a layer wanted them.", c.expert_hits);
  f.counter("moestro_expert_misses_total", "Experts that had to be fetched.", c.expert_misses);
  f.counter("moestro_expert_fetched_bytes_total", "Bytes of experts fetched on demand.", c.fetched_bytes);
  f.counter("moestro_dense_read_bytes_total",
            "Bytes of dense weights that steps read because not all stay in memory.", c.dense_bytes);
  f.seconds("moestro_dense_stall_seconds_total",
            "Of the stalls, time in which a worker waited for dense weights.", c.dense_stall_us);
  f.seconds("moestro_kv_stall_seconds_total",
            "Of the stalls, time in which a worker waited for KV that moves, or for attention on the host.",
            c.kv_stall_us);
  f.counter("moestro_nonfinite_sequences_total",
            "Sequences that failed because their activations or logits became NaN or infinite.",
            c.nonfinite_sequences);
  f.counter("moestro_capacity_dropped_total",
            "Choices of an expert by a token that the capacity factor dropped.", c.dropped_rows);
  f.counter("moestro_low_choices_total", "Choices of an expert by a token that a low copy served.", c.copies.low);
  f.counter("moestro_skipped_choices_total", "Choices of an expert by a token that no copy served.", c.copies.skipped);
  f.counter("moestro_mixed_choices_total",
            "Choices of an expert by a token on workers with low copies.", c.copies.choices);
}

void add_sequences(Figures f, const ControlSnapshot& c) {
  f.gauge("moestro_sequences_waiting", "Sequences without a worker.", c.waiting);
  f.text.gauge("moestro_queue_sequences", "Sequences without a worker, by class.")
      .sample(static_cast<double>(c.waiting - c.waiting_of_batches), {{"class", "interactive"}})
      .sample(static_cast<double>(c.waiting_of_batches), {{"class", "batch"}});
  f.counter("moestro_preemptions_total",
            "Sequences that were sent back to the queue to make room for others.", c.preemptions);
  f.counter("moestro_quarantined_total", "Sequences that failed because workers died of them.", c.quarantined);
  f.gauge("moestro_sequences_running", "Sequences that a worker holds.", c.running);
  f.gauge("moestro_kv_blocks_used", "KV blocks held by sequences.", c.kv_blocks_used);
  f.gauge("moestro_kv_blocks", "KV blocks of all workers.", c.kv_blocks_total);
  f.gauge("moestro_kv_host_blocks_used", "Copies of KV blocks of GPUs in host memory.", c.kv_host_blocks_used);
  f.gauge("moestro_kv_host_blocks", "KV blocks of GPUs that host memory has room for.", c.kv_host_blocks_total);
  f.counter("moestro_kv_moved_out_tokens_total",
            "Tokens whose keys and values were copied to host memory when others took their place.",
            c.kv_moved_out_tokens);
  f.counter("moestro_kv_moved_in_tokens_total",
            "Tokens whose keys and values were copied back from host memory instead of computed again.",
            c.kv_moved_in_tokens);
  f.gauge("moestro_prefix_blocks", "KV blocks that no sequence holds and that can be found again.", c.prefix_blocks);
  f.counter("moestro_prefix_cached_tokens_total",
            "Tokens whose keys and values were found in the KV cache instead of computed.", c.prefix_cached_tokens);
  f.gauge("moestro_state_slots",
          "States of sequences that workers have room for; 0: their models have none.", c.state_slots);
  f.gauge("moestro_state_slots_used", "Of these, those that sequences hold.", c.states_held);
  f.gauge("moestro_prefix_states",
          "States of prefixes that no sequence holds and that can be found again.", c.states_cached);
  f.counter("moestro_prefix_states_kept_total", "States of prefixes that were kept.", c.states_kept);
  f.counter("moestro_prefix_states_restored_total",
            "Times that a sequence went on from a prefix's state.", c.states_restored);
}

void add_history(Figures f, const ControlSnapshot& c) {
  f.gauge("moestro_history_prompts", "Past requests whose prompts' activations are kept.", c.history.prompts);
  f.gauge("moestro_history_answers", "Past requests whose answers' activations are kept.", c.history.answers);
  f.gauge("moestro_history_capacity", "Most of either that are kept.", c.history.capacity);
  f.counter("moestro_history_requests_total", "Requests that have entered the history.", c.history.requests);
  f.counter("moestro_history_replacements_total",
            "Entries of the history that a similar request has replaced.", c.history.replacements);
  f.gauge("moestro_history_shared_bytes",
          "Memory of the history that workers can map; 0: there is none.", c.history_readers.shared_bytes);
  if (c.history_kept_s)
    f.gauge("moestro_history_checkpoint_age_seconds",
            "Since the last checkpoint of the history that was kept.", *c.history_kept_s);
  f.text.gauge("moestro_history_readers",
               "Workers that have the history: its memory mapped, or a copy that messages keep.")
      .sample(static_cast<double>(c.history_readers.by_memory), {{"state", "mapped"}})
      .sample(static_cast<double>(c.history_readers.by_messages), {{"state", "copied"}});
}

void add_workers(Figures f, const std::string& model, const ControlSnapshot& c) {
  f.gauge("moestro_workers", "Workers that are there.", c.workers.size());
  f.counter("moestro_workers_lost_total", "Workers that died, fell silent or were replaced.", c.workers_lost);
  MetricText& text = f.text;
  text.histogram("moestro_step_duration_seconds", "What workers took for a plan.").sample(c.steps, {{"model", model}});
  text.counter("moestro_worker_restarts_total", "Workers that registered under a name that was there before.")
      .sample(static_cast<double>(c.worker_restarts), {{"model", model}});
  const auto each = [&](auto value) {
    for (const auto& w : c.workers) text.sample(static_cast<double>(value(w)), {{"model", model}, {"worker", w.name}});
  };
  text.counter("moestro_worker_steps_total", "Plans that a worker has computed since it registered.");
  each([](const auto& w) { return w.plans; });
  text.counter("moestro_worker_step_seconds_total", "Time it spent on them.");
  each([](const auto& w) { return static_cast<double>(w.step_us) * 1e-6; });
  text.counter("moestro_worker_stall_seconds_total", "Of it, time that it waited for experts, dense weights or KV.");
  each([](const auto& w) { return static_cast<double>(w.stall_us) * 1e-6; });
  text.gauge("moestro_worker_plans_in_flight", "Plans that it has and has not answered.");
  each([](const auto& w) { return w.plans_in_flight; });
  text.gauge("moestro_worker_heard_seconds", "Since it was last heard.");
  each([](const auto& w) { return w.age_s; });
}

}  // namespace

struct RequestMetrics::Families {
  explicit Families(const std::string& name)
      : model(name),
        labels{{"model", model}},
        ended(prometheus::BuildCounter()
                  .Name("moestro_requests_total")
                  .Help("Requests that have ended, by result.")
                  .Labels(labels)
                  .Register(registry)),
        running(prometheus::BuildGauge()
                    .Name("moestro_requests_running")
                    .Help("Requests accepted and not yet answered.")
                    .Labels(labels)
                    .Register(registry)
                    .Add({})),
        prompt(prometheus::BuildCounter()
                   .Name("moestro_prompt_tokens_total")
                   .Help("Tokens of prompts.")
                   .Labels(labels)
                   .Register(registry)
                   .Add({})),
        ttft(prometheus::BuildHistogram()
                 .Name("moestro_time_to_first_token_seconds")
                 .Help("From the request's arrival to its first token.")
                 .Labels(labels)
                 .Register(registry)
                 .Add({}, kSeconds)),
        tpot(prometheus::BuildHistogram()
                 .Name("moestro_time_per_output_token_seconds")
                 .Help("Between two tokens of one sequence.")
                 .Labels(labels)
                 .Register(registry)
                 .Add({}, kSeconds)) {}
  const std::string model;
  prometheus::Registry registry;
  prometheus::Labels labels;
  prometheus::Family<prometheus::Counter>& ended;
  prometheus::Gauge& running;
  prometheus::Counter& prompt;
  prometheus::Histogram& ttft;
  prometheus::Histogram& tpot;
};

RequestMetrics::RequestMetrics(const std::string& model) : f_(std::make_unique<Families>(model)) {
  for (const char* result : kResults)
    f_->ended.Add({{"result", result}});  // there from the start, at 0: rates need a beginning
}
RequestMetrics::~RequestMetrics() = default;

void RequestMetrics::request_started() { f_->running.Increment(); }
void RequestMetrics::request_ended(const std::string& result, bool was_started) {
  if (was_started) f_->running.Decrement();
  f_->ended.Add({{"result", result}}).Increment();
}
void RequestMetrics::prompt_tokens(size_t tokens) { f_->prompt.Increment(static_cast<double>(tokens)); }
void RequestMetrics::first_token(std::chrono::duration<double> after) { f_->ttft.Observe(after.count()); }
void RequestMetrics::next_tokens(std::chrono::duration<double> since_last, size_t tokens) {
  for (size_t i = 0; i < tokens; ++i) f_->tpot.Observe(since_last.count() / static_cast<double>(tokens));
}
int64_t RequestMetrics::running() const { return static_cast<int64_t>(f_->running.Value()); }
uint64_t RequestMetrics::total_prompt_tokens() const { return static_cast<uint64_t>(f_->prompt.Value()); }

nlohmann::json RequestMetrics::results() const {
  nlohmann::json results;
  for (const char* result : kResults)
    results[result] = static_cast<uint64_t>(f_->ended.Add({{"result", result}}).Value());
  return results;
}

nlohmann::json RequestMetrics::latencies() const {
  return {{"ttft_s", histogram_json(f_->ttft)}, {"tpot_s", histogram_json(f_->tpot)}};
}

std::string RequestMetrics::text(const ControlSnapshot& c) const {
  MetricText text;
  add_steps({text}, c);
  add_sequences({text}, c);
  add_history({text}, c);
  add_workers({text}, f_->model, c);
  return prometheus::TextSerializer().Serialize(f_->registry.Collect()) + text.text();
}

}  // namespace moestro::orchestrator
