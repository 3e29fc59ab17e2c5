#include "services/cli/pack/pack_command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/formats/encode.h"
#include "orchestrator/api/served_model.h"
#include "services/cli/common/checkpoint_hint.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/pack/progress.h"
#include "services/cli/pack/spread_option.h"
#include "services/command_line/command_line.h"
#include "store/pack/checkpoint.h"
#include "store/pack/packer.h"

namespace moestro::cli {
namespace {

struct PackArguments {
  std::string source, pack, dense, name;
  std::vector<std::string> experts, spread;
  unsigned jobs = std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
  bool json = false;
};

Result<store::PackOptions> pack_options(const PackArguments& arguments) {
  store::PackOptions options;
  options.jobs = arguments.jobs;
  options.model_name = arguments.name;
  for (const std::string& name : arguments.experts) {
    MOESTRO_ASSIGN_OR_RETURN(const DType precision, parse_dtype(name));
    options.experts.push_back(precision);
  }
  if (!arguments.dense.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(options.dense, parse_dtype(arguments.dense));
  }
  return options;
}

/// A chat template that is broken costs only chat, so it is said and no more.
Status check_served(const Result<orchestrator::ServedModel>& model) {
  if (model && !model->chat_template_error.empty())
    note("the chat template cannot be used, so the server will refuse chat requests; completions work: " +
         model->chat_template_error);
  return model.status();
}

/// What a pack is served with is read as the orchestrator reads it, before hours are spent on the weights.
Status check_servable(const std::filesystem::path& source) {
  std::error_code error;
  if (!std::filesystem::exists(source / "config.json", error))
    return Status::ok();  // no checkpoint: the packer says what is wrong
  if (!std::filesystem::exists(source / "tokenizer.json", error))
    return not_found(
        (source / "tokenizer.json").string() +
        ": is missing, and a model cannot be served without it; add the model's file (a slow tokenizer is converted by "
        "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR))");
  MOESTRO_RETURN_IF_ERROR(store::read_tokenizer_files(source).status());
  return check_served(orchestrator::ServedModel::load("", source));
}

/// The same of a GGUF file: of the files that its metadata become.
Status check_servable_gguf(const std::filesystem::path& gguf) {
  MOESTRO_ASSIGN_OR_RETURN(const store::Checkpoint checkpoint, store::Checkpoint::open(gguf));
  const auto read = [&](const std::string& name) -> Result<std::optional<std::string>> {
    for (const store::TextFile& file : *checkpoint.made_files())
      if (file.name == name) return std::optional(file.text);
    return std::optional<std::string>();
  };
  const auto label = [&](const std::string& name) { return gguf.string() + ": its metadata as " + name; };
  return check_served(orchestrator::ServedModel::of_files("", {read, label}));
}

Status run_pack(const PackArguments& arguments) {
  MOESTRO_ASSIGN_OR_RETURN(store::PackOptions options, pack_options(arguments));
  MOESTRO_RETURN_IF_ERROR(check_checkpoint_source(arguments.source, arguments.pack));
  MOESTRO_ASSIGN_OR_RETURN(const std::filesystem::path gguf, store::find_gguf(arguments.source));
  MOESTRO_RETURN_IF_ERROR(gguf.empty() ? check_servable(arguments.source) : check_servable_gguf(gguf));
  MOESTRO_RETURN_IF_ERROR(
      read_spread(arguments.spread, arguments.pack, options, [](const std::string& line) { note(line); }));
  ByteProgress progress("packing");
  const store::PackObserver observer{[&](uint64_t done, uint64_t total) { progress.update(done, total); },
                                     [&](const std::string& line) { note(line); }};
  const auto summary = store::pack_checkpoint(arguments.source, arguments.pack, options, observer);
  progress.finish();
  if (!summary) return summary.status();
  if (arguments.json) {
    const nlohmann::json report = {{"pack", arguments.pack}, {"bytes", summary->bytes},
                                   {"resumed_bytes", summary->resumed_bytes}, {"blobs", summary->blobs}};
    std::printf("%s\n", json_text(report).c_str());
  } else {
    std::printf("packed %s in %u blobs into %s\n", human_bytes(summary->bytes).c_str(), summary->blobs,
                arguments.pack.c_str());
  }
  return Status::ok();
}

}  // namespace

void add_pack_command(command_line::App& app, CommandResult& result) {
  auto* command = app.add_subcommand("pack",
                                     "Convert a Hugging Face checkpoint or GGUF file to a pack, which Moestro serves");
  auto arguments = std::make_shared<PackArguments>();
  command
      ->add_option("source", arguments->source,
                   "A directory with config.json, *.safetensors and tokenizer.json; or a GGUF file, the first part of "
                   "a split one, or a directory with one")
      ->required()
      ->option_text("SRC");
  command
      ->add_option("-o,--output", arguments->pack,
                   "Directory of the pack. After an interruption, the same command continues")
      ->required()
      ->option_text("PACK");
  std::vector<std::string> names = {"bf16", "bf16-12bit", "f16", "f32", "int8", "int4"};
  for (size_t i = 0; i < kBlockFormats; ++i)
    if (!is_made_of_others(block_format(i))) names.emplace_back(dtype_name(block_format(i)));
  const command_line::Check precisions = command_line::IsMember(names);
  for (const DType d : {DType::kInt2, DType::kMixed}) names.emplace_back(dtype_name(d));
  const command_line::Check expert_precisions = command_line::IsMember(names);
  command
      ->add_option(
          "--experts", arguments->experts,
          "Precisions of the experts. With several, the pack has all of them, and the first is served by "
          "default. bf16-12bit: bf16 without loss in three quarters of the space. BLOCKS, of fewer bits than the "
          "source has: " + formats::encodable_formats() + ". int2 changes answers much: it is meant for --mixed. "
          "Default: the plain precision that holds the checkpoint exactly; of a GGUF file or a quantised checkpoint, "
          "its own formats. mixed names these where they differ, as in mixed,int2")
      ->delimiter(',')
      ->check(expert_precisions)
      ->option_text("bf16|bf16-12bit|f16|f32|int8|int4|int2|mixed|BLOCKS[,...]");
  command
      ->add_option(
          "--dense", arguments->dense,
          "Precision of all other weights. bf16-12bit, int8, int4 and blocks apply to attention, shared experts, dense "
          "layers and the head. Default: as for --experts")
      ->check(precisions)
      ->option_text("bf16|bf16-12bit|f16|f32|int8|int4|BLOCKS");
  command
      ->add_option(
          "--spread", arguments->spread,
          "Another directory, on another drive, for a part of the pack. Give it once for each drive. The parts "
          "are in proportion to SHARE, or to the measured speed of the drives")
      ->allow_extra_args(false)
      ->option_text("DIR[=SHARE]");
  command->add_option("--jobs", arguments->jobs, "Threads")
      ->check(command_line::Range(1, 256))
      ->capture_default_str()
      ->option_text("N");
  command->add_option("--name", arguments->name, "Name of the model. Default: the source directory's name")
      ->option_text("NAME");
  command->add_flag("--json", arguments->json, "Print the result as JSON");
  command->footer(
      "Example:\n"
      "  hf download Qwen/Qwen3-30B-A3B --local-dir Qwen3-30B-A3B\n"
      "  moestro pack Qwen3-30B-A3B -o packs/qwen3 --experts bf16\n"
      "  moestro pack Qwen3-30B-A3B-Q4_K_M.gguf -o packs/qwen3-q4");
  command->callback([arguments, &result] {
    if (const Status status = run_pack(*arguments); !status.is_ok()) fail(result, status);
  });
}

}  // namespace moestro::cli
