#include "services/cli/top/server_look.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/top/text_width.h"
#include "services/cli/top/view.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

constexpr size_t kBatchesShown = 5;

/// object[key] if both are there; else an empty object, so that members can be asked of it.
const json& member(const json& object, const char* key) {
  static const json kNone = json::object();
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? kNone : *found;
}

std::string whole(uint64_t n) { return std::to_string(n); }

std::string per_second(uint64_t before, uint64_t now, double seconds) {
  return seconds > 0 && now >= before ? readable_count(static_cast<double>(now - before) / seconds) : "-";
}

std::string bar(const ServerLook::Batch& b) {
  constexpr size_t kCells = 14;
  const uint64_t done = b.total == 0 ? 0 : std::min(b.total, b.completed + b.failed);
  const size_t cells = b.total == 0 ? 0 : static_cast<size_t>(done * kCells / b.total);
  return std::string(cells, '#') + std::string(kCells - cells, '.');
}

ServerLook::Recent read_recent(const json& recent) {
  const auto quantiles = [&](const char* name) {
    const json& of = member(recent, name);
    return ServerLook::Quantiles{number_or(of, "p50", -1), number_or(of, "p99", -1)};
  };
  return {std::max(0.0, number_or(recent, "seconds", 0)), quantiles("ttft_s"), quantiles("tpot_s"),
          quantiles("step_s")};
}

std::string readable_time(double s) {
  if (s < 0) return "-";
  const char* unit = s < 1e-3 ? "us" : s < 1 ? "ms" : "s";
  const double n = s < 1e-3 ? s * 1e6 : s < 1 ? s * 1e3 : s;
  return printed("%.*f %s", n < 10 ? 2 : n < 100 ? 1 : 0, n, unit);
}

Line latency_line(const ServerLook::Recent& recent) {
  Line line = figures("latency");
  const auto add = [&](const char* name, const ServerLook::Quantiles& q) {
    line.add(std::string(name) + " p50 " + readable_time(q.p50_s) + ", p99 " + readable_time(q.p99_s));
  };
  add("first token", recent.first_token);
  add("; output token", recent.per_token);
  add("; step", recent.step);
  line.add(printed(" (of the last %.0f s)", recent.seconds), Tone::kQuiet);
  return line;
}

ServerLook::Speed read_speed(const json& status, const char* phase) {
  const json &measured = member(member(status, "recent"), phase), &forecast = member(member(status, "forecast"), phase);
  return {number_or(measured, "tokens_per_s", -1), number_or(measured, "stalled", -1),
          number_or(forecast, "tokens_per_s", -1), text_or(forecast, "bound", "?")};
}

/// "prompts 1.2k tokens/s, forecast 1.5k (bound by link); stalled 83 %"
std::string speed_text(const std::string& phase, const ServerLook::Speed& s, const std::string& forecast_for) {
  std::string text = phase + (s.measured < 0 ? " -" : " " + readable_count(s.measured) + " tokens/s");
  if (s.forecast >= 0)
    text += ", forecast " + readable_count(s.forecast) + forecast_for + " (bound by " + visible(s.forecast_bound) + ")";
  return text + (s.stalled < 0 ? "" : printed("; stalled %.0f %%", 100 * s.stalled));
}

std::vector<Line> speed_lines(const ServerLook& now) {
  if (now.prompts.measured < 0 && now.decoding.measured < 0 && now.prompts.forecast < 0) return {};
  return {figures("speed").add(speed_text("prompts", now.prompts, "")),
          figures("").add(speed_text("decoding", now.decoding, " with " + whole(now.forecast_sequences) + " at once"))};
}

/// A state other than serving comes with a problem.
Tone state_tone(const ServerLook& look) {
  if (look.problems.empty()) return Tone::kGood;
  return std::ranges::any_of(look.problems, &ServerLook::Problem::error) ? Tone::kBad : Tone::kWarn;
}

/// Shares of what was chosen between the looks, and since the start.
Line mixed_line(const ServerLook& before, const ServerLook& now) {
  const auto share = [](uint64_t part, uint64_t whole) {
    return percent(whole > 0 && part <= whole ? static_cast<double>(part) / static_cast<double>(whole) : -1);
  };
  const bool known = before.trouble.empty() && now.choices >= before.choices && now.low >= before.low &&
                     now.skipped >= before.skipped;
  const uint64_t choices = known ? now.choices - before.choices : 0;
  return figures("mixed").add("low copies served " + share(now.low - before.low, choices) + ", none " +
                              share(now.skipped - before.skipped, choices) + "; since start " +
                              share(now.low, now.choices) + " and " + share(now.skipped, now.choices));
}

void read_batches(const json& batches, ServerLook& look) {
  look.lines_in_flight = count_or(member(batches, "lines"), "in_flight");
  look.lines_retried = count_or(member(batches, "lines"), "retries");
  for (const json& b : member(batches, "under_way"))
    look.batches.push_back({text_or(b, "id"), text_or(b, "status"), count_or(b, "total"), count_or(b, "completed"),
                            count_or(b, "failed")});
}

}  // namespace

ServerLook read_server_status(std::string_view body) {
  ServerLook look;
  const auto parsed = parse_json(body);
  if (!parsed.is_ok() || !parsed->is_object() || !member(*parsed, "sequences").contains("waiting")) {
    look.trouble = "what answers is no orchestrator of this version";
    return look;
  }
  look.json = body;
  look.state = text_or(*parsed, "state", "serving");
  if (const json& up = member(*parsed, "uptime_s"); up.is_number()) look.uptime_s = up.get<double>();
  const json& sequences = member(*parsed, "sequences");
  look.requests = count_or(member(*parsed, "requests"), "running");
  look.waiting = count_or(sequences, "waiting"), look.running = count_or(sequences, "running"),
  look.sequences_max = count_or(sequences, "max");
  look.waiting_of_batches = std::min(look.waiting, count_or(sequences, "waiting_of_batches"));
  look.generated = count_or(member(*parsed, "tokens"), "generated"),
  look.prompt = count_or(member(*parsed, "tokens"), "prompt");
  for (const json& p : member(*parsed, "problems"))
    look.problems.push_back({text_or(p, "severity") == "error", text_or(p, "what") + " " + text_or(p, "do")});
  const json& mixed = member(*parsed, "mixed");
  look.choices = count_or(mixed, "choices"), look.low = count_or(mixed, "low"),
  look.skipped = count_or(mixed, "skipped");
  read_batches(member(*parsed, "batches"), look);
  look.recent = read_recent(member(*parsed, "recent"));
  look.prompts = read_speed(*parsed, "prompts"), look.decoding = read_speed(*parsed, "decoding");
  look.forecast_sequences = count_or(member(*parsed, "forecast"), "sequences");
  look.experts = read_expert_map(member(*parsed, "experts"));
  look.device = read_device(member(member(*parsed, "tiers"), "device"));
  if (look.device.workers > 0) {  // there, host memory has all dense weights
    const json& steps = member(*parsed, "steps");
    look.device.dense_bytes = count_or(steps, "dense_read_bytes");
    look.device.dense_stall_s = number_or(steps, "dense_stall_seconds", 0);
  }
  return look;
}

std::vector<Line> server_lines(const ServerLook& before, const ServerLook& now) {
  if (!now.trouble.empty()) return {figures("server").add(visible(now.trouble), Tone::kBad)};
  const double seconds = before.trouble.empty() ? now.uptime_s - before.uptime_s : 0;
  std::vector<Line> page;
  page.push_back(figures("server"));
  page.back().add(visible(now.state), state_tone(now));
  page.back().add("; " + counted(now.requests, "request") + " under way; " +
                  per_second(before.generated, now.generated, seconds) + " tokens/s written, " +
                  per_second(before.prompt, now.prompt, seconds) + "/s read");
  for (const auto& problem : now.problems)
    page.push_back(figures("      !", problem.error ? Tone::kBad : Tone::kWarn).add(visible(problem.words)));
  if (now.recent.seconds > 0) page.push_back(latency_line(now.recent));
  for (Line& line : speed_lines(now)) page.push_back(std::move(line));
  page.push_back(figures("queue"));
  page.back().add("waiting: interactive " + whole(now.waiting - now.waiting_of_batches) + ", batch " +
                  whole(now.waiting_of_batches) + "; at workers " + whole(now.running) + "; room for " +
                  whole(now.sequences_max));
  page.push_back(figures("batches"));
  page.back().add(whole(now.batches.size()) + " under way; " + counted(now.lines_in_flight, "line") + " given out, " +
                  whole(now.lines_retried) + " given out again");
  for (size_t i = 0; i < std::min(kBatchesShown, now.batches.size()); ++i) {
    const auto& b = now.batches[i];
    page.push_back(figures("").add(shortened(b.id, 20) + " [" + bar(b) + "] " + whole(b.completed) + " of " +
                                   whole(b.total) + ", "));
    page.back().add(whole(b.failed) + " failed", b.failed > 0 ? Tone::kBad : Tone::kPlain);
    page.back().add(", " + visible(b.status));
  }
  if (now.batches.size() > kBatchesShown)
    page.push_back(figures("").add("and " + whole(now.batches.size() - kBatchesShown) + " more"));
  if (now.choices > 0) page.push_back(mixed_line(before, now));
  for (Line& line : device_lines(before.device, now.device, seconds)) page.push_back(std::move(line));
  return page;
}

}  // namespace moestro::cli
