#include "services/cli/store/store_command.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/config/units.h"
#include "services/box/box_flags.h"
#include "services/box/named_pack.h"
#include "services/box/places.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/instance/instances.h"
#include "services/cli/store/status_json.h"
#include "services/command_line/command_line.h"
#include "store/client/status_client.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using store::PackChange;
using store::StoreStatusReport;

constexpr std::chrono::seconds kStatusWithin{10};
constexpr std::chrono::seconds kChangeWithin{120};  ///< a large manifest is read and checked

/// Each subcommand has its own: CLI11 options belong to one command.
struct Options {
  explicit Options(command_line::App& app)
      : flags(app, {{"run.dir", kRunDirOfCluster}, {"model.name", kNameOfCluster}}) {}
  box::BoxFlags flags;
  std::string what;
  bool json = false;
};

Result<std::string> endpoint_of(const Options& options) {
  config::BoxConfig box;
  MOESTRO_RETURN_IF_ERROR(options.flags.read(box));
  if (!box.run.dir.empty()) return box::store_endpoint(box.run.dir);
  if (!box.model.name.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(const std::filesystem::path run_dir, run_dir_of(box.model.name));
    return box::store_endpoint(run_dir);
  }
  MOESTRO_ASSIGN_OR_RETURN(const Instance instance, only_instance(find_instances()));
  return box::store_endpoint(instance.run_dir);
}

std::string dense_text(const StoreStatusReport::Model& m) {
  std::string text = config::readable_size(m.dense_bytes) + " dense";
  if (m.streamed_layers > 0)
    text += " (" + std::to_string(m.streamed_layers) + " of " + std::to_string(m.layers) + " layers, " +
            config::readable_size(m.streamed_bytes) + ", are read in each step)";
  return text;
}

std::string share_text(const StoreStatusReport::Model& m) {
  std::string text = "; holds " + config::readable_size(m.used_bytes);
  if (m.guaranteed_bytes > 0) text += ", guaranteed " + config::readable_size(m.guaranteed_bytes);
  if (m.maximal_bytes > 0) text += ", at most " + config::readable_size(m.maximal_bytes);
  return text;
}

void print(const StoreStatusReport& s) {
  using config::readable_size;
  std::printf("arena %s, %s in use, %s resident; %u blobs share the bytes of another\n",
              readable_size(s.arena_bytes).c_str(), readable_size(s.used_bytes).c_str(),
              readable_size(s.resident_bytes).c_str(), s.aliases);
  if (const auto& w = s.warm_start; w.blobs > 0)
    std::printf("warm start %s: %s of %s, %llu of %llu blobs, in %.1f s; %llu left out\n",
                w.running ? "under way" : "done", readable_size(w.bytes_there).c_str(), readable_size(w.bytes).c_str(),
                static_cast<unsigned long long>(w.blobs_there), static_cast<unsigned long long>(w.blobs), w.seconds,
                static_cast<unsigned long long>(w.left_out));
  for (const auto& m : s.models)
    std::printf("%-24s %s: %u of %u experts resident, %s, %s of experts, %u worker%s%s\n",
                one_line(m.name).c_str(), one_line(m.pack).c_str(), m.resident_experts, m.experts,
                dense_text(m).c_str(), readable_size(m.expert_bytes).c_str(), m.workers,
                m.workers == 1 ? "" : "s",
                (share_text(m) + (m.retired ? "; removed or replaced, goes with them" : "")).c_str());
}

Status list(const Options& options) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string endpoint, endpoint_of(options));
  MOESTRO_ASSIGN_OR_RETURN(const StoreStatusReport report, store::query_store(endpoint, kStatusWithin));
  if (options.json)
    std::printf("%s\n", json_text(status_json(report), 2).c_str());
  else print(report);
  return Status::ok();
}

Status change(const Options& options, PackChange kind) {
  box::NamedPack model{options.what, ""};
  if (kind == PackChange::kRemove) {
    MOESTRO_RETURN_IF_ERROR(box::check_model_name(model.name));
  } else {
    MOESTRO_ASSIGN_OR_RETURN(model, box::parse_named_pack(options.what));
    std::error_code ignored;  // the store looks at it and says what is wrong
    model.pack = std::filesystem::absolute(model.pack, ignored).string();
  }
  MOESTRO_ASSIGN_OR_RETURN(const std::string endpoint, endpoint_of(options));
  MOESTRO_ASSIGN_OR_RETURN(const std::string done,
                           store::change_packs(endpoint, kind, model.name, model.pack, kChangeWithin));
  std::printf("%s\n", one_line(done).c_str());
  return Status::ok();
}

void finish(CommandResult& result, const Status& status) {
  if (!status.is_ok()) fail(result, status);
}

void add_change(command_line::App& command, CommandResult& result, PackChange kind, const char* name,
                const char* help) {
  command_line::App* sub = command.add_subcommand(name, help);
  auto options = std::make_shared<Options>(*sub);
  sub->add_option(
         kind == PackChange::kRemove ? "NAME" : "NAME=PACK", options->what,
         kind == PackChange::kRemove ? "Name of the model" : "Name of the model, and the directory of its pack")
      ->required();
  sub->callback([options, &result, kind] { finish(result, change(*options, kind)); });
}

}  // namespace

void add_store_command(command_line::App& app, CommandResult& result) {
  command_line::App* command =
      app.add_subcommand("store", "List, add, replace and remove the models of a running store");
  command->require_subcommand(1);
  add_change(*command, result, PackChange::kAdd, "add", "Serve one more model");
  add_change(*command, result, PackChange::kReplace, "replace",
             "Serve a model from another version of its pack, or from the repaired one. Workers switch one by one");
  add_change(*command, result, PackChange::kRemove, "remove",
             "Stop serving a model. Workers that are attached keep it until they end");
  command_line::App* show =
      command->add_subcommand("list", "List models, their packs and how much of them is in memory");
  auto options = std::make_shared<Options>(*show);
  show->add_flag("--json", options->json, "Print the result as JSON");
  show->callback([options, &result] { finish(result, list(*options)); });
}

}  // namespace moestro::cli
