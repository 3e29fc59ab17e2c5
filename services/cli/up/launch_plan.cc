#include "services/cli/up/launch_plan.h"

#include <algorithm>
#include <cctype>

#include "services/cli/url.h"

namespace moestro::cli {
namespace {

using config::BoxConfig;
namespace fs = std::filesystem;

/// Appends "--flag value" pairs.
class Arguments {
 public:
  Arguments& add(const std::string& flag, const std::string& value) {
    words_.push_back(flag);
    words_.push_back(value);
    return *this;
  }
  Arguments& add(const std::string& flag, const std::optional<int64_t>& value) {
    return value ? add(flag, std::to_string(*value)) : *this;
  }
  Arguments& add_text(const std::string& flag, const std::string& value) {
    return value.empty() ? *this : add(flag, value);
  }
  Arguments& add_if(bool set, const std::string& flag) {
    if (set) words_.push_back(flag);
    return *this;
  }
  std::vector<std::string> take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

std::string socket_of(const Places& places, const char* name) {
  return "ipc://" + (places.run_dir / name).string();
}

Launch store_launch(const BoxConfig& box, const Places& places) {
  Arguments arguments;
  arguments.add("--run-dir", places.run_dir.string()).add("--arena-dir", places.arena_dir.string());
  if (box.store.dram) arguments.add("--dram", std::to_string(box.store.dram->value));
  arguments.add("--model", box.model.name + "=" + box.model.pack).add("--io", box.store.io);
  arguments.add_if(box.store.poison_freed, "--poison-freed").add("--log-level", box.run.log_level);
  return {{"store", Role::kStore}, "moestro-store", arguments.take()};
}

Launch worker_launch(const BoxConfig& box, const Places& places, int64_t index, int64_t cores) {
  const std::string name = "worker-" + std::to_string(index);
  const auto own_file = [&](const std::string& file) {
    return file.empty() || box.workers.count == 1 ? file : insert_name(file, name).string();
  };
  Arguments arguments;
  arguments.add("--model", box.model.name).add("--name", name);
  arguments.add("--store", socket_of(places, "store.sock"))
      .add("--orchestrator", socket_of(places, "orchestrator.sock"));
  arguments.add("--device", box.workers.device);
  // One worker alone knows best; several must not each take the whole machine.
  std::optional<int64_t> threads = box.workers.threads;
  if (!threads && box.workers.count > 1) threads = std::max<int64_t>(1, cores / box.workers.count);
  arguments.add("--threads", threads);
  arguments.add("--kv-tokens", box.workers.kv_tokens)
      .add("--context", box.workers.context)
      .add("--reserve", box.workers.reserve);
  arguments.add_text("--precision", box.workers.precision)
      .add_if(box.workers.deterministic, "--deterministic");
  arguments.add_text("--trace", own_file(box.workers.trace))
      .add_text("--timeline", own_file(box.workers.timeline));
  arguments.add("--log-level", box.run.log_level);
  return {{name, Role::kWorker}, "moestro-worker", arguments.take()};
}

Launch orchestrator_launch(const BoxConfig& box, const Places& places) {
  Arguments arguments;
  arguments.add("--model", box.model.name + "=" + box.model.pack).add("--run-dir", places.run_dir.string());
  arguments.add("--http", box.orchestrator.http).add("--step-tokens", box.orchestrator.step_tokens);
  const int64_t drain_s = (box.run.drain.count() + 999) / 1000;
  arguments.add("--queue-max", box.orchestrator.queue_max)
      .add("--drain-s", std::to_string(drain_s))
      .add("--log-level", box.run.log_level);
  return {{"orchestrator", Role::kOrchestrator}, "moestro-orchestrator", arguments.take()};
}

}  // namespace

Status check_model_name(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-';
  });
  if (name.empty() || name.size() > 64 || !plain || name.front() == '.' || name.front() == '-')
    return invalid_argument(
        "model name '" + name.substr(0, 80) +
        "' is not made of 1 to 64 letters, digits, '.', '_' and '-'; give one with --name");
  return Status::ok();
}

Status check_box(BoxConfig& box) {
  if (box.model.pack.empty())
    return invalid_argument("no model: give --model PACK, or model.pack in a file with -c");
  std::error_code error;
  const fs::path pack = fs::weakly_canonical(fs::absolute(box.model.pack), error);
  if (error || !fs::is_regular_file(pack / "manifest", error))
    return not_found("no pack at " + box.model.pack +
                     " (no file 'manifest' in it); make one: moestro pack HF_DIR -o " + box.model.pack);
  if (box.model.name.empty()) box.model.name = pack.filename().string();
  MOESTRO_RETURN_IF_ERROR(check_model_name(box.model.name));
  box.model.pack = pack.string();
  return parse_host_port(box.orchestrator.http).status();
}

fs::path insert_name(const fs::path& file, const std::string& name) {
  const std::string leaf = file.filename().string();
  const size_t dot = leaf.find('.', 1);
  const std::string stem = leaf.substr(0, dot), rest = dot == std::string::npos ? "" : leaf.substr(dot);
  return file.parent_path() / (stem + "." + name + rest);
}

std::vector<Launch> plan_launches(const BoxConfig& box, const Places& places, int64_t cores) {
  std::vector<Launch> launches{store_launch(box, places)};
  for (int64_t i = 0; i < box.workers.count; ++i) launches.push_back(worker_launch(box, places, i, cores));
  launches.push_back(orchestrator_launch(box, places));
  return launches;
}

}  // namespace moestro::cli
