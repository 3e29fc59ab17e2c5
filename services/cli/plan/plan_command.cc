#include "services/cli/plan/plan_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "services/cli/bench/model/model_shape.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/plan/box_plan.h"
#include "services/cli/plan/plan_report.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

using Kind = config::DeviceSpec::Kind;

/// nullopt: auto.
Result<std::optional<planner::ScheduleName>> pinned_schedule(const std::string& name) {
  const auto schedule = planner::schedule_of(name);
  if (schedule || name == "auto") return schedule;
  return invalid_argument("--schedule " + name + " is unknown; there are auto, layerwise, expert-pipeline and cgo");
}

Result<std::optional<Hardware>> hardware_of(const PlanOptions& o) {
  if (o.hardware.empty()) return std::optional<Hardware>();
  auto hardware = read_hardware(o.hardware, o.device.starts_with("cuda"));
  if (!hardware.is_ok()) return hardware.status().with_context("--hardware");
  return std::optional<Hardware>(std::move(*hardware));
}

Result<std::string> run_plan(const PlanOptions& o) {
  MOESTRO_ASSIGN_OR_RETURN(const auto schedule, pinned_schedule(o.schedule));
  MOESTRO_ASSIGN_OR_RETURN(const std::optional<Hardware> file, hardware_of(o));
  const Hardware* const hardware = file ? &*file : nullptr;
  MOESTRO_ASSIGN_OR_RETURN(PlanParts parts, plan_parts(o, hardware));
  MOESTRO_ASSIGN_OR_RETURN(const PlannedQuality quality, plan_quality(o, parts.model));
  planner::PlanInput& input = parts.input;
  if (quality.mixed) input.schedule = planner::ScheduleName::kLayerwise;  // low copies run with no other
  // What does not fit with one sequence at a time is refused before anything is measured.
  const auto least = planner::place(input, planner::Arrangement{});
  const bool streams = schedule && *schedule != planner::ScheduleName::kLayerwise;
  if (!least.is_ok() && !streams) return least.status();
  MOESTRO_ASSIGN_OR_RETURN(const PlannedRates rates,
                           plan_rates(o, parts.model, parts.memory, hardware, planner::may_need_drive(input)));
  input.rates = rates.rates;
  MOESTRO_ASSIGN_OR_RETURN(const planner::Plan plan, planner::make_plan(input));
  const PlanReport report{o, parts.model, parts.memory, rates, input, plan, quality};
  if (!o.json) return plan_text(report);
  return json_text(plan_json(report), 2) + "\n";
}

void add_model_options(command_line::App& plan, PlanOptions& o) {
  plan.add_option("--model", o.pack, "Pack of the model")->type_name("PACK");
  plan.add_option("--shape,--config", o.shape,
                  "Instead of --model: a Hugging Face config.json or its folder, or the name of a shape of `moestro "
                  "bench model`. Nothing else of the model has to be there")
      ->type_name("CONFIG.JSON|NAME");
  plan.add_option("--experts", o.experts,
                  "Precision of the experts: one of the pack's, by default its first. With --shape one that `moestro "
                  "pack` converts to, by default bf16")
      ->type_name("DTYPE");
  plan.add_option("--dense", o.dense, "With --shape: precision of all other weights. Default: bf16")
      ->type_name("DTYPE");
  plan.add_option("--kv-dtype", o.kv_dtype, "Precision of the KV cache: f32, bf16, f16 or int8")
      ->capture_default_str()
      ->type_name("DTYPE");
}

void add_quality_options(command_line::App& plan, PlanOptions& o) {
  const char* const group = "Quality, as scripts/measure_quality.py --keep has measured it of the pack";
  plan.add_option("--mixed", o.mixed,
                  "Low copies of missing experts. auto: of the measured settings that stay within --max-loss, the one "
                  "that saves the most bytes. Else a setting of `moestro up --mixed` that was measured. The forecast "
                  "is without low copies. The schedule is layerwise")
      ->capture_default_str()
      ->type_name("auto|LOW[,...]")
      ->group(group);
  plan.add_option("--max-loss", o.max_loss,
                  "Most that perplexity may grow, such as 1%. Default: 10% for the experts' precision, 1% for --mixed")
      ->type_name("PERCENT")
      ->group(group);
}

void add_machine_options(command_line::App& plan, PlanOptions& o) {
  const char* const group = "Machine";
  plan.add_option("--device", o.device, "Device to compute on, as for `moestro up`. cuda needs --hardware")
      ->capture_default_str()
      ->type_name("DEVICE")
      ->group(group);
  plan.add_option("--vram", o.vram, "Device memory to use. Default: all of the card's, or the emulated device's vram")
      ->type_name("SIZE")
      ->group(group);
  plan.add_option("--dram", o.dram, "Host memory for weights, as for `moestro up`. Default: what is left")
      ->type_name("SIZE")
      ->group(group);
  plan.add_option("--hardware", o.hardware,
                  "Rates and memories from a file as in configs/hardware. Default: this machine's, which are measured "
                  "in some seconds and kept")
      ->type_name("FILE.yaml")
      ->group(group);
  plan.add_option("--drive", o.drive,
                  "Rate of the drive that has the pack, such as 5GB/s. Default: of --hardware, or measured if it is "
                  "needed")
      ->type_name("RATE")
      ->group(group);
  plan.add_option("--threads", o.threads, "Threads that compute. Default: one per core")
      ->check(command_line::Range(1, 1024))
      ->type_name("N")
      ->group(group);
  plan.add_flag("--measure", o.measure, "Measure again, although rates of an earlier measurement are there")
      ->group(group);
}

void add_workload_options(command_line::App& plan, PlanOptions& o) {
  const char* const group = "Workload";
  const auto count = [&](const char* flag, int64_t& variable, int64_t most, const char* help) {
    plan.add_option(flag, variable, help)
        ->check(command_line::Range(int64_t{1}, most))
        ->capture_default_str()
        ->type_name("N")
        ->group(group);
  };
  count("--prompt", o.prompt, 1 << 24, "Tokens of each prompt");
  count("--generate", o.generate, 1 << 24, "Tokens that each sequence generates");
  count("--sequences", o.sequences, 65536, "Sequences. As many run at once as fit, or as is fastest");
  const auto set_step = [&o](const int64_t& n) { o.step_tokens = n, o.steps_grow = false; };
  plan.add_option_function<int64_t>("--step-tokens", set_step,
                                    "Most tokens in one step. Default: 512, or as many for each of its micro-batches")
      ->check(command_line::Range(int64_t{1}, int64_t{65536}))
      ->type_name("N")
      ->group(group);
  plan.add_option("--schedule", o.schedule,
                  "Schedule of a step: layerwise, expert-pipeline or cgo. auto: the fastest that workers run")
      ->capture_default_str()
      ->type_name("NAME")
      ->group(group);
  plan.add_flag("!--no-prefetch", o.prefetch, "Bring no expert before it is needed")->group(group);
  plan.add_option("--hits", o.hits,
                  "Measured share of the experts decoding uses that are on the device, or on the CPU in host memory, "
                  "as from `moestro top` or `moestro replay`. Default: the resident share")
      ->check(command_line::Range(0.0, 1.0))
      ->type_name("SHARE")
      ->group(group);
  plan.add_option("--foreseen", o.foreseen,
                  "Share of the missing experts that are foreseen in time. Default: what even routing makes certain")
      ->check(command_line::Range(0.0, 1.0))
      ->type_name("SHARE")
      ->group(group);
}

}  // namespace

void add_plan_command(command_line::App& app, CommandResult& result) {
  command_line::App* plan =
      app.add_subcommand("plan", "Say whether a model fits, how fast it will be, and what limits it");
  auto o = std::make_shared<PlanOptions>();
  add_model_options(*plan, *o);
  add_quality_options(*plan, *o);
  add_machine_options(*plan, *o);
  add_workload_options(*plan, *o);
  plan->add_flag("--json", o->json, "Print the result as JSON");
  plan->footer(
      "Examples:\n"
      "  moestro plan --model packs/qwen3 --dram 24GiB\n"
      "  moestro plan --shape config.json --experts int4 --device cuda --hardware configs/hardware/l4.yaml "
      "--dram 64GiB");
  plan->callback([o, &result] {
    const auto text = run_plan(*o);
    if (text.is_ok()) return static_cast<void>(std::fputs(text->c_str(), stdout));
    const Code code = text.status().code();
    const bool usage = code == Code::kInvalidArgument || code == Code::kUnsupported;
    fail(result, text.status(), usage ? kExitUsage : kExitFailed);
  });
}

}  // namespace moestro::cli
