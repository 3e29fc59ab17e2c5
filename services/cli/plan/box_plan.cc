#include "services/cli/plan/box_plan.h"

#include <algorithm>

#include "common/lanes/schedule.h"
#include "common/planner/step_size.h"
#include "kernels/cpu/topology.h"
#include "services/box/host_budget.h"
#include "services/cli/common/checkpoint_hint.h"
#include "services/cli/common/output.h"
#include "services/cli/plan/schedule_report.h"
#include "services/worker/engine/host_attention.h"

namespace moestro::cli {
namespace {

using planner::ScheduleName;
using Kind = config::DeviceSpec::Kind;

int64_t sequence_tokens(const planner::Workload& w) {
  return round_up(w.kv_positions(), planner::kKvTokensPerBlock);
}

/// A batch that fills the KV cache.
PlanOptions options_of(const config::BoxConfig& box) {
  const config::BoxConfig::Workers& w = box.workers;
  PlanOptions o;
  o.pack = box.model.pack, o.experts = w.precision, o.kv_dtype = w.kv_dtype, o.device = w.device;
  if (box.store.dram) o.dram = std::to_string(box.store.dram->value);
  o.threads = static_cast<int>(w.threads.value_or(0));
  o.prefetch = w.predict != "none", o.measured_only = true;
  // Who comes next to a batch waits for the step that runs: it gets no longer than plan_steps() lets it.
  o.step_tokens = config::step_buffers(box), o.steps_grow = false;
  const int64_t tokens = w.kv_tokens.value_or(box::kAutoKvTokens);
  const planner::Workload lines = planner::lines_that_fill(tokens, w.context.value_or(tokens));
  o.prompt = lines.prompt, o.generate = lines.generate, o.sequences = lines.sequences;
  return o;
}

bool planner_is_asked(const config::BoxConfig& box, Kind device) {
  const config::BoxConfig::Workers& w = box.workers;
  return w.schedule == "auto" && w.count == 1 && w.kv_home == "device" && w.kv_window == 0 && !w.micro_batches &&
         !w.micro_batch_rows && !w.kv_ring_tokens && w.kv_resident_tokens == 0 && w.mixed == "off" &&
         device != Kind::kCuda;
}

/// Where the box says nothing of steps, and what they cost is known: low copies and KV that moves are not in forecasts,
/// and a window keeps blocks for each step. A GPU's worker chooses by itself, for it knows the GPU's memory.
bool steps_are_chosen(const config::BoxConfig& box, Kind device) {
  const config::BoxConfig::Workers& w = box.workers;
  return !w.step_buffers && !box.orchestrator.step_tokens && w.kv_home == "device" && w.kv_window == 0 &&
         w.mixed == "off" && (w.schedule == "auto" || w.schedule == "layerwise") && device != Kind::kCuda;
}

/// Whether not every expert has its place where it is computed.
bool experts_move(const planner::PlanInput& in) {
  if (in.memories.device == planner::Memories::Device::kHost) return planner::may_need_drive(in);
  const auto placement = planner::place(in, planner::Arrangement{.rows = in.workload.sequences});
  return !placement.is_ok() || placement->device_experts < placement->experts;
}

/// With this batch, so that what it measures is what is looked for here.
std::string measuring_command(const PlanOptions& o) {
  std::string text = "moestro plan --model " + shell_quoted(o.pack);
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) text += std::string(" ") + flag + " " + shell_quoted(value);
  };
  add("--experts", o.experts);
  if (o.kv_dtype != "f32") add("--kv-dtype", o.kv_dtype);
  if (o.device != "cpu") add("--device", o.device);
  add("--dram", o.dram);
  if (o.threads > 0) add("--threads", std::to_string(o.threads));
  add("--prompt", std::to_string(o.prompt));
  add("--generate", std::to_string(o.generate));
  add("--sequences", std::to_string(o.sequences));
  return text;
}

std::string said(const planner::PlanInput& input, const planner::ScheduleSearch& search,
                 const planner::ScheduleOption& choice) {
  std::string text = "schedule " + std::string(planner::schedule_name(choice.arrangement.schedule));
  if (const std::string flags = plan_flags(input, choice); !flags.empty()) text += " (" + flags + ")";
  for (const planner::ScheduleOption& other : search.options)
    if (other.runs && other.arrangement.schedule != choice.arrangement.schedule)
      text += "; " + std::string(planner::schedule_name(other.arrangement.schedule)) + " would take " +
              printed("%.2f times as long", other.seconds() / choice.seconds());
  return text;
}

/// Of one of several workers, which share the host's memory and drive.
Status share_host(const config::BoxConfig& box, const PlannedModel& model, planner::PlanInput& in) {
  if (box.workers.count == 1) return Status::ok();
  MOESTRO_ASSIGN_OR_RETURN(const box::WorkerMemory all, box::worker_memory(box, model.config_json));
  const uint64_t others = all.total() / all.workers * (all.workers - 1);
  in.memories.host_bytes -= std::min(in.memories.host_bytes, others);
  if (in.rates.drive_bytes_per_s) *in.rates.drive_bytes_per_s /= static_cast<double>(all.workers);
  return Status::ok();
}

Result<planner::StepSize> choose_steps(config::BoxConfig box) {
  PlanOptions o = options_of(box);
  o.typical = true;
  MOESTRO_ASSIGN_OR_RETURN(PlanParts parts, plan_parts(o, nullptr));
  if (parts.model.sizes.has_encoder()) return planner::StepSize{.tokens = config::step_buffers(box)};
  MOESTRO_ASSIGN_OR_RETURN(const PlannedRates rates, plan_rates(o, parts.model, parts.memory, nullptr, true));
  return planner::choose_step_size([&](int64_t tokens) -> Result<planner::PlanInput> {
    o.step_tokens = tokens, box.workers.step_buffers = tokens;
    MOESTRO_ASSIGN_OR_RETURN(parts.memory, plan_memory(o, parts.model, nullptr));
    planner::PlanInput in = parts.input;
    in.workload.step_tokens = tokens;
    in.memories = parts.memory.memories, in.needs = parts.memory.needs, in.rates = rates.rates;
    MOESTRO_RETURN_IF_ERROR(share_host(box, parts.model, in));
    return in;
  });
}

orchestrator::Forecast::Phase phase_of(const planner::Phase& phase) {
  return {phase.tokens_per_s(), std::string(planner::lane_name(phase.forecast.bound()))};
}

Result<orchestrator::Forecast> forecast_of(PlanOptions o, const std::string& schedule) {
  o.schedule = schedule;
  MOESTRO_ASSIGN_OR_RETURN(PlanParts parts, plan_parts(o, nullptr));
  parts.input.kv_moves = false;
  MOESTRO_ASSIGN_OR_RETURN(const PlannedRates rates,
                           plan_rates(o, parts.model, parts.memory, nullptr, planner::may_need_drive(parts.input)));
  parts.input.rates = rates.rates;
  MOESTRO_ASSIGN_OR_RETURN(const planner::ScheduleSearch search, planner::search_schedules(parts.input));
  const planner::ScheduleOption& option = search.options.front();
  orchestrator::Forecast f;
  f.schedule = planner::schedule_name(option.arrangement.schedule);
  f.step_tokens = o.step_tokens, f.prompt = o.prompt, f.generate = o.generate;
  f.sequences = std::min(option.arrangement.sequences(), o.sequences);
  f.prompts = phase_of(option.prompt), f.decoding = phase_of(option.decode);
  return f;
}

Result<std::string> ask(config::BoxConfig& box, const PlanOptions& o) {
  MOESTRO_ASSIGN_OR_RETURN(PlanParts parts, plan_parts(o, nullptr));
  if (parts.model.description.spec.has_states() || parts.model.sizes.has_encoder()) return std::string();
  parts.input.kv_moves = false;  // that is only ever asked for
  if (!experts_move(parts.input)) return std::string();
  const auto rates = plan_rates(o, parts.model, parts.memory, nullptr, planner::may_need_drive(parts.input));
  if (rates.status().code() == Code::kNotFound)
    return "schedule layerwise: " + rates.status().message() + "; auto chooses by it once this has measured it: " +
           measuring_command(o);
  if (!rates.is_ok()) return rates.status();
  parts.input.rates = rates->rates;
  MOESTRO_ASSIGN_OR_RETURN(const planner::ScheduleSearch search, planner::search_schedules(parts.input));
  const planner::ScheduleOption* const choice = planner::chosen(search);
  if (choice == nullptr) return std::string();
  take_plan(parts.input, *choice, box);
  return said(parts.input, search, *choice);
}

/// `compute=` makes a device slower than the cores that compute for it, so that there is time left on them.
bool host_shares_cores(const PlanOptions& o, const PlannedMemory& memory) {
  const config::DeviceSpec& device = memory.device;
  if (device.kind != config::DeviceSpec::Kind::kEmulated || device.emulated.compute.count() > 0) return false;
  const int cores = kernels::cpu::Topology::of_process().cores();
  return 2 * (o.threads > 0 ? o.threads : cores) > cores;
}

std::string no_host_attention(const model::ModelSpec& spec) {
  const std::string what = engine::not_on_host(spec);
  return what.empty() ? "" : "the host does not attend with " + what;
}

}  // namespace

Result<PlanParts> plan_parts(const PlanOptions& o, const Hardware* hardware) {
  PlanParts parts;
  MOESTRO_ASSIGN_OR_RETURN(parts.model, read_planned_model(o));
  MOESTRO_ASSIGN_OR_RETURN(parts.memory, plan_memory(o, parts.model, hardware));
  parts.input = {.sizes = parts.model.sizes,
                 .rates = {},
                 .memories = parts.memory.memories,
                 .needs = parts.memory.needs,
                 .workload = workload_of(o, parts.model),
                 .schedule = planner::schedule_of(o.schedule),
                 .as_workers = o.schedule == "auto",
                 .no_host_attention = no_host_attention(parts.model.description.spec),
                 .host_shares_cores = host_shares_cores(o, parts.memory),
                 .prefetch = o.prefetch && !parts.model.sizes.has_encoder(),  // nothing is predicted of them
                 .device_hits = o.hits,
                 .foreseen = o.foreseen};
  return parts;
}

void take_plan(const planner::PlanInput& in, const planner::ScheduleOption& choice, config::BoxConfig& box) {
  const planner::Arrangement& a = choice.arrangement;
  if (a.schedule == ScheduleName::kLayerwise || (a.schedule == ScheduleName::kCgo && !choice.runs)) return;
  config::BoxConfig::Workers& w = box.workers;
  const int64_t sequence = sequence_tokens(in.workload);
  const int64_t kv_tokens = std::min(a.sequences(), in.workload.sequences) * sequence;
  w.schedule = planner::schedule_name(a.schedule);
  w.micro_batches = a.micro_batches;
  if (const int64_t step = planner::step_tokens(in.workload, a); step != in.workload.step_tokens)
    box.orchestrator.step_tokens = step;
  if (!w.kv_tokens && kv_tokens > box::kAutoKvTokens) w.kv_tokens = kv_tokens;
  if (a.kv_share >= 1) return;
  w.kv_home = "host";
  w.context = in.workload.prompt + in.workload.generate;  // the ring has room for no longer ones
  w.kv_ring_tokens = lanes::kKvPlaces * a.rows * sequence;
  const double resident = a.kv_share * static_cast<double>(w.kv_tokens.value_or(box::kAutoKvTokens));
  w.kv_resident_tokens = static_cast<int64_t>(resident) / planner::kKvTokensPerBlock * planner::kKvTokensPerBlock;
}

std::string plan_flags(const planner::PlanInput& in, const planner::ScheduleOption& choice) {
  config::BoxConfig box;
  take_plan(in, choice, box);
  const config::BoxConfig::Workers& w = box.workers;
  if (w.schedule == "auto") return "";
  std::string text = "--schedule " + w.schedule + " --micro-batches " + std::to_string(*w.micro_batches);
  const auto add = [&](const char* flag, std::optional<int64_t> value) {
    if (value && *value > 0) text += std::string(" ") + flag + " " + std::to_string(*value);
  };
  add("--step-tokens", box.orchestrator.step_tokens);
  add("--kv-tokens", w.kv_tokens);
  if (w.kv_home == "host") text += " --kv-home host";
  add("--context", w.context);
  add("--kv-ring-tokens", w.kv_ring_tokens);
  add("--kv-resident-tokens", w.kv_resident_tokens);
  return text;
}

std::optional<orchestrator::Forecast> forecast_box(const config::BoxConfig& box) {
  const config::BoxConfig::Workers& w = box.workers;
  const auto device = config::parse_device(w.device);
  if (!device.is_ok() || device->kind == Kind::kCuda || w.count > 1 || w.kv_home != "device" || w.kv_window > 0 ||
      w.mixed != "off")
    return std::nullopt;
  const auto forecast = forecast_of(options_of(box), w.schedule == "auto" ? "layerwise" : w.schedule);
  return forecast.is_ok() ? std::optional(*forecast) : std::nullopt;  // what is missing is said elsewhere
}

std::string plan_steps(config::BoxConfig& box) {
  const auto device = config::parse_device(box.workers.device);
  if (!device.is_ok() || !steps_are_chosen(box, device->kind)) return "";
  const auto size = choose_steps(box);  // what stands against it stands against the start too
  if (!size.is_ok() || size->tokens == config::step_buffers(box)) return "";
  box.workers.step_buffers = size->tokens;
  return "steps of up to " + std::to_string(size->tokens) +
         " tokens, since not every expert fits: forecast for prompts " + rate_text(size->prompt_tokens_per_s) +
         " instead of " + rate_text(size->usual_prompt_tokens_per_s) + " tokens/s (--step-tokens N sets the number)";
}

std::string plan_schedule(config::BoxConfig& box) {
  const auto device = config::parse_device(box.workers.device);
  if (!device.is_ok() || !planner_is_asked(box, device->kind)) return "";
  // What stands against a plan stands against the start too, or the schedule stays what it would be without one.
  const auto line = ask(box, options_of(box));
  return line.is_ok() ? *line : "";
}

}  // namespace moestro::cli
