#include "services/cli/replay/replay_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/config/mixed_spec.h"
#include "common/config/units.h"
#include "common/policy/make_policy.h"
#include "services/cli/replay/hardware.h"
#include "services/cli/replay/host_options.h"

namespace moestro::cli {
namespace {

constexpr uint64_t kExpertBytes = uint64_t{16}
                                  << 20;  ///< where neither hardware nor size is named: only ratios count then
constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
constexpr uint64_t kChunksMax = 32;  ///< of an expert, so that a replay of large ones stays quick
constexpr double kUsable = 0.9;  ///< of a device's memory, beside KV and activations that --vram is said to be free of

Result<uint64_t> size_of(const char* flag, const std::string& text, uint64_t otherwise) {
  if (text.empty()) return otherwise;
  const auto size = config::parse_size(text);
  if (!size.is_ok()) return size.status().with_context(flag);
  if (*size == 0) return invalid_argument(std::string(flag) + ": more than nothing is needed");
  return *size;
}

Status check_names(const ReplayOptions& o) {
  const auto& names = policy::device_policy_names();
  if (o.cache == "belady" || std::ranges::find(names, o.cache) != names.end()) return Status::ok();
  return policy::make_device_policy(o.cache, {1, 1}).status().with_context("--cache");
}

/// The slots of a device, or what stands for them on a CPU.
Status read_room(const ReplayOptions& o, const tier::Routes& routes, ReplayCase& what) {
  tier::ReplaySetup& s = what.setup;
  if (what.cpu) {
    MOESTRO_RETURN_IF_ERROR(check_no_device_flags(o));
    what.cache = what.host->cache, s.slots = what.host->experts;
    s.times.link_bytes_per_s = what.host->drive_bytes_per_s, s.times.link_latency = what.host->drive_latency;
    return Status::ok();
  }
  if (what.host && o.sweep)
    return invalid_argument("--sweep has one memory and one link: leave out --drive and --host, or --slots and --vram");
  if (what.host && what.cache == "belady")
    return invalid_argument("--cache belady knows one memory: leave out --drive and --host, or choose another policy");
  const int64_t experts = int64_t{routes.layers} * routes.experts;
  MOESTRO_ASSIGN_OR_RETURN(s.slots, parse_slots(o.slots.empty() ? kSlots : o.slots, experts));
  if (o.vram.empty()) return Status::ok();
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t vram, size_of("--vram", o.vram, 0));
  const auto fit = static_cast<int64_t>(kUsable * static_cast<double>(vram) / static_cast<double>(s.expert_bytes));
  if (fit < 1)
    return invalid_argument("--vram " + o.vram + ": not one expert of " + config::readable_size(s.expert_bytes) +
                            " fits in it");
  s.slots = static_cast<int32_t>(std::min(fit, experts));
  return Status::ok();
}

/// The device's memory, for low copies too. Full ones are taken to be bf16.
Status read_mixed(const ReplayOptions& o, const tier::Routes& routes, ReplayCase& what) {
  MOESTRO_ASSIGN_OR_RETURN(const auto mixed, config::parse_mixed(o.mixed));
  if (!mixed) return Status::ok();
  if (what.host) return unsupported("host memory has every copy: leave out --drive");
  if (what.cache == "belady")
    return unsupported("--cache belady knows one kind of copies; it is printed along with the others");
  if (routes.weights.empty())
    return invalid_argument("the trace lacks gate weights (\"w\"), or some of its tokens do; `moestro up --trace` "
                            "records them");
  what.setup.mixed = mixed;
  return share_slots(what, routes);
}

/// Of a row that every format's blocks and groups divide.
double row_bytes_with_parameters(DType d) {
  constexpr int64_t kColumns = 256;
  return static_cast<double>(row_bytes(d, kColumns) + parameter_bytes(d, kColumns));
}

/// Of full copies in bf16.
Result<uint64_t> bytes_of_low(DType low, uint64_t full_bytes) {
  const std::string name(dtype_name(low));
  if (low == DType::kMixed)
    return unsupported(name + " has formats that a trace does not name; choose one format, such as int4");
  const double part = row_bytes_with_parameters(low) / row_bytes_with_parameters(DType::kBF16);
  if (part >= 1) return invalid_argument(name + " is not smaller than bf16, which full copies are taken to be");
  return std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(full_bytes) * part));
}

}  // namespace

Status share_slots(ReplayCase& what, const tier::Routes& routes) {
  tier::ReplaySetup& setup = what.setup;
  if (!setup.mixed) return Status::ok();
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t low_bytes, bytes_of_low(setup.mixed->low, setup.expert_bytes));
  what.full_slots = setup.slots;
  tier::TierOptions tier{routes.layers, routes.experts, setup.slots, setup.expert_bytes};
  const uint64_t room = static_cast<uint64_t>(setup.slots) * setup.expert_bytes;
  if (!tier::share_room(tier, room, setup.mixed->share, low_bytes))
    return invalid_argument("memory for full copies of " + std::to_string(setup.slots) +
                            " experts holds none in addition to the low ones: give the device more, or low copies a "
                            "smaller share");
  setup.slots = tier.slots, setup.low_slots = tier.low_slots, setup.low_bytes = tier.low_bytes;
  return Status::ok();
}

std::optional<double> parse_percent(std::string_view text) {
  double number = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && at + 1 == text.data() + text.size() && *at == '%';
  if (!whole || !(number > 0) || number > 100) return std::nullopt;
  return number / 100;
}

Result<int32_t> parse_slots(const std::string& text, int64_t experts) {
  if (const auto share = parse_percent(text))
    return static_cast<int32_t>(std::max(1.0, std::round(*share * static_cast<double>(experts))));
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || at != end || !(number > 0) || number > 1e9)
    return invalid_argument("--slots " + text + ": a number of experts, or a share of them as in 25%");
  if (number != std::floor(number))
    return invalid_argument("--slots " + text + ": a whole number of experts, or a share of them as in 25%");
  return static_cast<int32_t>(std::min(number, static_cast<double>(experts)));
}

void set_host_from_setup(ReplayCase& what) {
  what.host->experts = what.setup.slots;
  what.host->drive_bytes_per_s = what.setup.times.link_bytes_per_s;
  what.host->drive_latency = what.setup.times.link_latency;
}

Result<ReplayCase> read_case(const ReplayOptions& o, const tier::Routes& routes) {
  MOESTRO_RETURN_IF_ERROR(check_names(o));
  ReplayCase what;
  what.cache = o.cache, what.predict = o.predict;
  if (!o.restart.empty())
    what.start = o.restart == "nothing" ? ReplayCase::Start::kNothing : ReplayCase::Start::kCheckpoint;
  tier::ReplaySetup& s = what.setup;
  MOESTRO_ASSIGN_OR_RETURN(s.expert_bytes, size_of("--expert-bytes", o.expert_bytes, kExpertBytes));
  if (o.hardware.empty()) {
    s.times.expert = s.times.attention = Nanos(static_cast<int64_t>(o.expert_ms * 1e6));
    s.times.expert_token = s.times.attention_token = s.times.expert / 64;
    s = with_copy_ratio(s, o.copy_ratio);
  } else {
    if (o.expert_bytes.empty())
      return invalid_argument("--hardware needs --expert-bytes: a trace does not say how large experts are");
    MOESTRO_ASSIGN_OR_RETURN(const Hardware hardware, read_hardware(o.hardware));
    MOESTRO_ASSIGN_OR_RETURN(const uint64_t attention,
                             size_of("--attention-bytes", o.attention_bytes, s.expert_bytes / 4));
    s.times = times_on(hardware, {s.expert_bytes, attention});
  }
  s.times.cpu_ratio = o.cpu_ratio;
  if (!o.link.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(const uint64_t rate, size_of("--link", o.link, 0));
    s.times.link_bytes_per_s = static_cast<double>(rate);
  }
  s.chunk_bytes = std::max(kChunkBytes, (s.expert_bytes + kChunksMax - 1) / kChunksMax);
  MOESTRO_ASSIGN_OR_RETURN(what.host, read_host(o, routes, s.expert_bytes));
  what.cpu = what.host && o.slots.empty() && o.vram.empty();
  MOESTRO_RETURN_IF_ERROR(read_room(o, routes, what));
  if (o.cpu_ratio > 0 && what.host)
    return unsupported("--cpu-ratio: the CPU takes experts from host memory that has all of them: leave out --drive");
  s.batch = static_cast<int32_t>(o.batch), s.chunk = static_cast<int32_t>(o.chunk);
  s.keep = o.keep, s.prefetch = o.prefetch, s.how = o.how;
  MOESTRO_RETURN_IF_ERROR(read_mixed(o, routes, what).with_context("--mixed"));
  return what;
}

tier::ReplaySetup with_copy_ratio(tier::ReplaySetup setup, double ratio) {
  const double seconds = ratio * std::chrono::duration<double>(setup.times.expert).count();
  setup.times.link_bytes_per_s = static_cast<double>(setup.expert_bytes) / seconds;
  setup.times.link_latency = Nanos{0};
  return setup;
}

double copy_ratio_of(const tier::ReplaySetup& setup) {
  const double copy = static_cast<double>(setup.expert_bytes) / setup.times.link_bytes_per_s +
                      std::chrono::duration<double>(setup.times.link_latency).count();
  const double expert = std::chrono::duration<double>(setup.times.expert).count();
  return expert > 0 ? copy / expert : 0;
}

}  // namespace moestro::cli
