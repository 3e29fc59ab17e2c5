#include "store/server/kept_models.h"

#include "common/shm/whole_file.h"
#include "store/arena/text_file.h"

namespace moestro::store {
namespace {

constexpr std::string_view kModelsLine = "moestro-models 2";
constexpr size_t kModelsBytesMax = 1 << 20;

std::filesystem::path file_in(const std::filesystem::path& run_dir) { return run_dir / "store.models"; }

}  // namespace

std::string serialise_kept_models(const KeptModels& models) {
  std::string text = std::string(kModelsLine) + "\ndram " + std::to_string(models.dram) + "\n";
  for (const ModelSource& model : models.started) text += "started " + model.name + " " + model.pack.string() + "\n";
  for (const ModelSource& model : models.served)
    text += (model.retired ? "retired " : "serves ") + model.name + " " + model.pack.string() + "\n";
  return with_checksum(std::move(text));
}

Result<KeptModels> parse_kept_models(std::string_view text) {
  MOESTRO_ASSIGN_OR_RETURN(const auto lines, checked_lines(text));
  if (lines.empty() || lines[0] != kModelsLine) return unsupported("it is of another version of this program");
  KeptModels models;
  for (size_t i = 1; i < lines.size(); ++i) {
    std::string_view line = lines[i];
    const std::string_view word = next_word(line);
    if (i == 1) {
      const auto dram = number<uint64_t>(line);
      if (word != "dram" || !dram) return corrupt("it does not say the size of the arena");
      models.dram = *dram;
      continue;
    }
    const std::string_view name = next_word(line);
    if ((word != "started" && word != "serves" && word != "retired") || name.empty() || line.empty())
      return corrupt("it has a line that names no model");
    (word == "started" ? models.started : models.served)
        .push_back({std::string(name), std::string(line), word == "retired"});
  }
  return models;
}

Status write_kept_models(const std::filesystem::path& run_dir, const KeptModels& models) {
  return shm::write_whole_file(file_in(run_dir), serialise_kept_models(models));
}

Result<KeptModels> read_kept_models(const std::filesystem::path& run_dir) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string text, read_lines_file(file_in(run_dir), kModelsBytesMax));
  auto models = parse_kept_models(text);
  if (!models) return models.status().with_context(file_in(run_dir).string());
  return models;
}

void remove_kept_models(const std::filesystem::path& run_dir) {
  std::error_code ignored;
  std::filesystem::remove(file_in(run_dir), ignored);
}

Status check_kept_path(const std::filesystem::path& pack) {
  if (pack.string().find('\n') == std::string::npos) return Status::ok();
  return invalid_argument("the path of its pack has a line break; move the pack, or give it by a link");
}

}  // namespace moestro::store
