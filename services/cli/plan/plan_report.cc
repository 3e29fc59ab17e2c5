#include "services/cli/plan/plan_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/config/units.h"
#include "common/planner/virtual_step.h"
#include "services/cli/common/output.h"
#include "services/cli/plan/box_plan.h"
#include "services/cli/plan/schedule_report.h"

namespace moestro::cli {
namespace {

using config::readable_size;
using Json = nlohmann::ordered_json;
using planner::kLanes;
using planner::Lane;
using planner::Phase;
using planner::ScheduleOption;
using Kind = config::DeviceSpec::Kind;

bool there(const PlanReport& r, const ScheduleOption& option, Lane lane) {
  switch (lane) {
    case Lane::kCompute: return true;
    case Lane::kLink: return r.memory.device.kind != Kind::kCpu;
    case Lane::kDrive: return option.placement.needs_drive();
    case Lane::kLinkOut:
    case Lane::kHost: return option.prompt.forecast.busy(lane) + option.decode.forecast.busy(lane) > 0;
  }
  return false;
}

std::string lane_text(const PlanReport& r, Lane lane) {
  if (lane == Lane::kCompute) return r.memory.device.kind == Kind::kCuda ? "GPU" : "CPU";
  return std::string(planner::lane_name(lane));
}

std::string dtype_text(DType dtype) { return std::string(dtype_name(dtype)); }

std::string head_text(const PlanReport& r) {
  const planner::ModelSizes& s = r.model.sizes;
  const planner::Precisions& p = s.precisions;
  const PlanOptions& o = r.options;
  return printed("%.200s: %lld layers of %lld experts (%lld a token)\n", one_line(r.model.name).c_str(),
                 static_cast<long long>(s.layers.size()), static_cast<long long>(s.experts),
                 static_cast<long long>(s.top_k)) +
         "experts " + dtype_text(p.experts) + " (" + readable_size(s.expert_bytes) + " each), dense weights " +
         dtype_text(p.dense) + ", KV " + dtype_text(p.kv) + " (" +
         readable_size(static_cast<uint64_t>(s.kv_bytes_per_token())) + " a token)\n" +
         printed("%s, prompt %lld, generate %lld, prefetch %s, device %.200s\n",
                 counted(static_cast<uint64_t>(o.sequences), "sequence").c_str(), static_cast<long long>(o.prompt),
                 static_cast<long long>(o.generate), r.input.prefetch ? "on" : "off", one_line(o.device).c_str());
}

std::string tiers_text(const PlanReport& r) {
  std::string text = printed("\n%-14s %10s  %s\n", "memory", "bytes", "what lies there");
  for (const planner::Tier& tier : r.plan.choice.placement.tiers) {
    const std::string of = tier.capacity_bytes > 0 ? " of " + readable_size(tier.capacity_bytes) : "";
    std::string name = tier.name;
    for (const planner::Part& part : tier.parts) {
      if (part.bytes == 0 && !part.what.ends_with("experts")) continue;
      text += printed("%-14s %10s  %s\n", name.c_str(), readable_size(part.bytes).c_str(), part.what.c_str());
      name.clear();
    }
    text += printed("%-14s %10s  in all%s\n", name.c_str(), readable_size(tier.used_bytes()).c_str(), of.c_str());
  }
  return text;
}

std::string bound_text(const PlanReport& r, const planner::StepForecast& f) {
  std::string text = "bound by the " + lane_text(r, f.bound());
  if (f.bound() == Lane::kCompute) text += f.reads_bound() ? " (reading weights and cache)" : " (computing)";
  std::string idle;
  for (const Lane lane : kLanes)
    if (there(r, r.plan.choice, lane))
      idle += (idle.empty() ? "" : ", ") + lane_text(r, lane) + printed(" %.0f %%", 100 * std::max(0.0, f.idle(lane)));
  return text + "; idle: " + idle;
}

std::string phase_text(const PlanReport& r, const char* name, const Phase& phase) {
  const planner::StepForecast& f = phase.forecast;
  std::string text = printed("%-8s %8s tokens/s  ", name, rate_text(phase.tokens_per_s()).c_str()) +
                     seconds_text(f.seconds) + " a step of " + rate_text(phase.step.rows) + "; " +
                     bound_text(r, f) + "\n";
  if (r.input.prefetch && f.most_seconds > 1.02 * f.least_seconds) {
    const auto at = [&](double seconds) { return rate_text(phase.tokens_per_s() * f.seconds / seconds); };
    text += printed("%-8s %8s tokens/s  %s\n", "", (at(f.most_seconds) + "-" + at(f.least_seconds)).c_str(),
                    "if no missing expert is foreseen, and if all are");
  }
  return text;
}

std::string change(double to, double from) { return printed("%+.1f %%", from > 0 ? 100 * (to / from - 1) : 0.0); }

std::string what_ifs_text(const PlanReport& r) {
  std::string text = printed("\n%-28s %10s %10s %10s\n", "with", "prompt", "decode", "all");
  for (const planner::WhatIf& w : r.plan.what_ifs)
    text += printed("%-28s %10s %10s %10s\n", w.what.c_str(),
                    change(w.prompt_tokens_per_s, r.plan.choice.prompt.tokens_per_s()).c_str(),
                    change(w.decode_tokens_per_s, r.plan.choice.decode.tokens_per_s()).c_str(),
                    seconds_text(w.seconds).c_str());
  return text;
}

Json phase_json(const PlanReport& r, const ScheduleOption& option, const Phase& phase) {
  const planner::StepForecast& f = phase.forecast;
  Json lanes = Json::object();
  for (const Lane lane : kLanes)
    if (there(r, option, lane))
      lanes[std::string(planner::lane_name(lane))] = {{"busy_s", f.busy(lane)}, {"idle", std::max(0.0, f.idle(lane))}};
  return {{"tokens", phase.tokens},
          {"seconds", phase.seconds},
          {"tokens_per_s", phase.tokens_per_s()},
          {"step_rows", phase.step.rows},
          {"context", phase.step.context},
          {"step_s", f.seconds},
          {"step_s_if_all_is_foreseen", f.least_seconds},
          {"step_s_if_nothing_is_foreseen", f.most_seconds},
          {"bound", planner::lane_name(f.bound())},
          {"reads_bound", f.reads_bound()},
          {"lanes", std::move(lanes)},
          {"attention_s", f.attention_seconds},
          {"experts_s", f.expert_seconds},
          {"head_s", f.head_seconds},
          {"experts_used_per_layer", f.experts_used},
          {"link_bytes_per_step", f.link_bytes},
          {"drive_bytes_per_step", f.drive_bytes}};
}

Json tiers_json(const planner::Placement& placement) {
  Json tiers = Json::array();
  for (const planner::Tier& tier : placement.tiers) {
    Json parts = Json::array();
    for (const planner::Part& part : tier.parts) parts.push_back({{"what", part.what}, {"bytes", part.bytes}});
    Json one = {{"name", tier.name}, {"bytes", tier.used_bytes()}, {"capacity_bytes", nullptr}, {"parts", parts}};
    if (tier.capacity_bytes > 0) one["capacity_bytes"] = tier.capacity_bytes;
    tiers.push_back(std::move(one));
  }
  return tiers;
}

Json arrangement_json(const PlanReport& r, const planner::Arrangement& a) {
  return {{"micro_batches", a.micro_batches},
          {"rows", a.rows},
          {"sequences", std::min(a.sequences(), r.options.sequences)},
          {"dense_share", a.dense_share},
          {"kv_share", a.kv_share},
          {"slots", a.slots},
          {"ahead", a.ahead}};
}

/// A schedule's best arrangement: where it lies, and what it gives.
Json option_json(const PlanReport& r, const ScheduleOption& option) {
  const planner::Placement& placement = option.placement;
  Json made = {{"schedule", planner::schedule_name(option.arrangement.schedule)},
               {"runs", option.runs},
               {"flags", option.runs ? plan_flags(r.input, option) : ""},
               {"arrangement", arrangement_json(r, option.arrangement)}};
  made["placement"] = {{"experts", placement.experts},
                       {"device_experts", placement.device_experts},
                       {"host_experts", placement.host_experts},
                       {"arena_bytes", placement.arena_bytes},
                       {"streamed_layers", placement.streamed_layers},
                       {"streamed_bytes", placement.streamed_bytes}};
  made["tiers"] = tiers_json(placement);
  made["prompt"] = phase_json(r, option, option.prompt);
  made["decode"] = phase_json(r, option, option.decode);
  made["seconds"] = option.seconds();
  made["bubble_free_micro_batches"] = nullptr;
  if (option.bubble_free) made["bubble_free_micro_batches"] = *option.bubble_free;
  made["bubbles"] = Json::array();
  for (const planner::Inequality& i : option.bubbles)
    made["bubbles"].push_back(
        {{"what", i.what}, {"computing_s", i.computing_s}, {"bringing_s", i.bringing_s}, {"short_s", i.short_s()}});
  return made;
}

Json model_json(const PlannedModel& model) {
  const planner::ModelSizes& s = model.sizes;
  return {{"name", model.name},
          {"architecture", model.description.spec.architecture},
          {"layers", s.layers.size()},
          {"moe_layers", s.moe_layers},
          {"experts_per_layer", s.experts},
          {"top_k", s.top_k},
          {"experts", dtype_name(s.precisions.experts)},
          {"dense", dtype_name(s.precisions.dense)},
          {"kv_dtype", dtype_name(s.precisions.kv)},
          {"expert_bytes", s.expert_bytes},
          {"experts_bytes", s.experts_bytes()},
          {"dense_bytes", s.dense_bytes},
          {"kv_bytes_per_token", s.kv_bytes_per_token()}};
}

/// Of what was measured; empty: nothing.
std::string quality_text(const PlanReport& r) {
  std::string text;
  if (r.quality.experts_loss)
    text += "quality: experts as " + std::string(dtype_name(r.model.experts)) + " " +
            loss_text(*r.quality.experts_loss) + " perplexity against " + r.quality.experts_against + "\n";
  if (const auto& m = r.quality.mixed)
    text += printed("--mixed %s: %s perplexity; %.0f %% of choices low, %.0f %% skipped, which spares %.0f %% of the "
                    "bytes\n",
                    m->mixed.c_str(), loss_text(m->loss).c_str(), 100 * m->low_share, 100 * m->skipped_share,
                    100 * m->saved);
  return text;
}

Json quality_json(const PlannedQuality& q) {
  Json made = {{"experts_loss", nullptr}, {"experts_against", nullptr}, {"mixed", nullptr}};
  if (q.experts_loss) made["experts_loss"] = *q.experts_loss, made["experts_against"] = q.experts_against;
  if (q.mixed)
    made["mixed"] = {{"mixed", q.mixed->mixed},
                     {"loss", q.mixed->loss},
                     {"low_share", q.mixed->low_share},
                     {"skipped_share", q.mixed->skipped_share},
                     {"spared_share", q.mixed->saved}};
  return made;
}

/// The flags that do what was forecast.
std::string run_text(const PlanReport& r) {
  std::string flags = plan_flags(r.input, r.plan.choice);
  if (r.quality.mixed) flags += (flags.empty() ? "" : " ") + std::string("--mixed ") + r.quality.mixed->mixed;
  return r.plan.choice.runs && !flags.empty() ? "to run it: moestro up " + flags + "\n" : "";
}

}  // namespace

std::vector<std::string> plan_assumptions(const PlanReport& r) {
  std::vector<std::string> all;
  all.push_back("every expert is as likely as any other; trained routers use fewer at once");
  all.push_back("a prompt's attention is counted as its operations alone, in steps of " +
                std::to_string(planner::step_tokens(r.input.workload, r.plan.choice.arrangement)) +
                " tokens; all prompts come before decoding");
  if (r.memory.device.kind != Kind::kCpu)
    all.push_back(r.options.hits ? "prompts find on the device the resident share of experts, decoding --hits"
                                 : "the device holds what is used as often as anything else; --hits gives a measured "
                                   "share");
  if (r.plan.choice.placement.needs_drive())
    all.push_back("host memory has its share of any experts, also of those that the device lacks");
  if (r.plan.search.options.size() > 1 || r.plan.choice.arrangement.schedule != planner::ScheduleName::kLayerwise)
    all.push_back(std::string("schedules other than layerwise: copies that are queued behind others wait") +
                  (planner::steps_follow_one_another(r.input) ? "" : ", every step begins with nothing on its way") +
                  "; device to host is as fast as host to device");
  if (r.input.prefetch && !r.options.foreseen)
    all.push_back("only what even routing makes certain is foreseen; --foreseen gives a measured share");
  if (r.memory.device.kind == Kind::kCuda)
    all.push_back("kernels reach 80 % of the peaks in the hardware file; launches take no time, and no expert is "
                  "computed on the host");
  if (r.memory.device.kind == Kind::kEmulated)
    all.push_back("copies of the emulated link take none of the CPU's memory bandwidth");
  if (r.memory.device.kind == Kind::kEmulated && r.plan.choice.arrangement.schedule == planner::ScheduleName::kCgo)
    all.push_back("the host attends on other cores than those that compute for the emulated device");
  if (is_made_of_others(r.model.experts) && !r.quality.experts_loss)
    all.push_back("what experts as " + std::string(dtype_name(r.model.experts)) +
                  " cost in quality was not measured of this pack (scripts/measure_quality.py --keep)");
  all.push_back("HTTP, tokenizer, sampling other than greedy, and other processes take no time");
  return all;
}

std::string plan_text(const PlanReport& r) {
  const ScheduleOption& choice = r.plan.choice;
  std::string text = head_text(r) + "\n" + schedules_text(r) + tiers_text(r) + "\n";
  text += phase_text(r, "prompt", choice.prompt) + phase_text(r, "decode", choice.decode);
  text += "all of it in " + seconds_text(choice.seconds()) + "\n" + quality_text(r) + run_text(r) + bubbles_text(r) +
          what_ifs_text(r);
  text += "\nrates: " + r.rates.source + "; host memory: " + r.memory.host + "\nassumed:\n";
  for (const std::string& line : plan_assumptions(r)) text += "- " + line + "\n";
  return text;
}

Json plan_json(const PlanReport& r) {
  const PlanOptions& o = r.options;
  Json json = {{"model", model_json(r.model)},
               {"asked_schedule", o.schedule},
               {"prefetch", r.input.prefetch},
               {"device", o.device},
               {"workload",
                {{"prompt", o.prompt},
                 {"generate", o.generate},
                 {"sequences", o.sequences},
                 {"step_tokens", o.step_tokens}}}};
  json["rates"] = {{"source", r.rates.source}, {"link_bytes_per_s", nullptr}, {"drive_bytes_per_s", nullptr}};
  if (r.rates.rates.link_bytes_per_s) json["rates"]["link_bytes_per_s"] = *r.rates.rates.link_bytes_per_s;
  if (r.rates.rates.drive_bytes_per_s) json["rates"]["drive_bytes_per_s"] = *r.rates.rates.drive_bytes_per_s;
  json.update(option_json(r, r.plan.choice));
  json["schedules"] = Json::array();
  for (const ScheduleOption& option : r.plan.search.options) json["schedules"].push_back(option_json(r, option));
  json["left_out"] = Json::array();
  for (const planner::LeftOut& left : r.plan.search.left_out)
    json["left_out"].push_back({{"schedule", planner::schedule_name(left.schedule)}, {"why", left.why}});
  json["candidates"] = r.plan.search.candidates;
  json["what_ifs"] = Json::array();
  for (const planner::WhatIf& w : r.plan.what_ifs)
    json["what_ifs"].push_back({{"what", w.what},
                                {"prompt_tokens_per_s", w.prompt_tokens_per_s},
                                {"decode_tokens_per_s", w.decode_tokens_per_s},
                                {"seconds", w.seconds}});
  json["quality"] = quality_json(r.quality);
  json["assumptions"] = plan_assumptions(r);
  return json;
}

}  // namespace moestro::cli
