#include "services/cli/pack/pack_report.h"

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "common/model/model_spec.h"
#include "services/cli/pack/model_parts.h"
#include "services/cli/pack/progress.h"
#include "store/pack/shards.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

std::string hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

json file_report(const std::filesystem::path& dir, const store::Manifest& m) {
  std::map<uint32_t, uint64_t> bytes;
  for (const store::Blob& b : m.blobs)
    for (const store::Slice& s : b.slices) bytes[s.file] += s.length;
  json files = json::array();
  const std::vector<std::filesystem::path> paths = store::data_files(dir, m);
  for (uint32_t i = 0; i < m.files.size(); ++i)
    files.push_back({{"name", m.files[i]}, {"bytes", bytes[i]}, {"directory", paths[i].parent_path().string()}});
  return files;
}

std::string row(const char* label, const std::string& value) {
  char text[512];
  std::snprintf(text, sizeof text, "%-14s %s\n", label, value.c_str());
  return text;
}

}  // namespace

Result<json> pack_report(const std::filesystem::path& dir, const store::Manifest& m) {
  MOESTRO_ASSIGN_OR_RETURN(const auto model, model::describe_model(m.config_json, m.generation_config_json));
  uint64_t dense_bytes = 0, slices = 0;
  std::map<DType, std::pair<uint64_t, uint64_t>> experts;  // count, bytes
  for (const store::Blob& b : m.blobs) {
    slices += b.slices.size();
    if (b.kind == store::BlobKind::kDense) dense_bytes += b.length;
    else experts[b.precision].first += 1, experts[b.precision].second += b.length;
  }
  json precisions = json::array();
  uint64_t expert_bytes = 0;
  for (const DType d : m.expert_precisions) {
    const auto [count, bytes] = experts[d];
    precisions.push_back(
        {{"precision", dtype_name(d)}, {"experts", count}, {"bytes", bytes}, {"blob_bytes", bytes / count}});
    expert_bytes += bytes;
  }
  const auto& spec = model.spec;
  return json{
      {"pack", dir.string()},
      {"model", m.model_name},
      {"architecture", spec.architecture},
      {"version", m.version},
      {"layout_id", m.layout_id},
      {"identity", hex(m.identity)},
      {"layers", spec.layers.size()},
      {"moe_layers", spec.moe_layers()},
      {"top_k", spec.moe().top_k},
      {"hidden", spec.hidden},
      {"expert_ffn", spec.moe().expert.ffn},
      {"vocab", spec.vocab},
      {"max_position", spec.max_position},
      {"parts",
       {{"attention", attention_text(spec)}, {"router", router_text(spec.moe())}, {"expert", expert_text(spec.moe())}}},
      {"dense",
       {{"precision", dtype_name(m.blobs.front().precision)}, {"tensors", m.tensors.size()}, {"bytes", dense_bytes}}},
      {"experts",
       {{"per_layer", spec.moe().experts},
        {"bytes", expert_bytes},
        {"blob_bytes", precisions[0]["blob_bytes"]},
        {"precisions", precisions}}},
      {"blobs", m.blobs.size()},
      {"slices", slices},
      {"bytes", dense_bytes + expert_bytes},
      {"files", file_report(dir, m)}};
}

std::string pack_report_text(const json& r) {
  const auto number = [&r](const char* key) { return std::to_string(r[key].get<uint64_t>()); };
  const auto bytes = [](const json& at) { return human_bytes(at["bytes"].get<uint64_t>()); };
  std::string text = row("model", r["model"].get<std::string>() + " (" + r["architecture"].get<std::string>() + ")");
  text += row("pack", "version " + number("version") + ", expert layout " + number("layout_id") + ", identity " +
                          r["identity"].get<std::string>());
  text +=
      row("layers", number("layers") + ", " + number("moe_layers") + " of them with " +
                        std::to_string(r["experts"]["per_layer"].get<uint64_t>()) + " experts, top " + number("top_k"));
  text += row("shape", "hidden " + number("hidden") + ", expert ffn " + number("expert_ffn") + ", vocabulary " +
                           number("vocab") + ", " + number("max_position") + " positions");
  for (const char* part : {"attention", "router", "expert"}) text += row(part, r["parts"][part].get<std::string>());
  text += row("dense", r["dense"]["precision"].get<std::string>() + ", " + bytes(r["dense"]));
  for (const json& e : r["experts"]["precisions"])
    text += row("experts", e["precision"].get<std::string>() + ", " + bytes(e) + ", " +
                               human_bytes(e["blob_bytes"].get<uint64_t>()) + " each");
  for (const json& f : r["files"]) text += row("file", f["name"].get<std::string>() + ", " + bytes(f));
  text += row("in all", bytes(r) + " in " + number("blobs") + " blobs, " + number("slices") + " slices");
  return text;
}

}  // namespace moestro::cli
