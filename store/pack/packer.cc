#include "store/pack/packer.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/config/units.h"
#include "store/pack/blob_writer.h"
#include "store/pack/checkpoint.h"
#include "store/pack/copied_files.h"
#include "store/pack/journal.h"
#include "store/pack/pack_plan.h"
#include "store/pack/requantise.h"
#include "store/pack/shards.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;

/// That of all experts' matrices, or kMixed.
DType one_format(const std::vector<ExpertFormats>& layers) {
  const bool equal = std::ranges::all_of(layers, [&](const ExpertFormats& f) { return f == layers.front(); });
  return equal ? layers.front().dtype() : DType::kMixed;
}

/// Rows of a format of blocks are whole ones.
Status check_widths(const model::ModelSpec& spec, DType d) {
  const int64_t columns = block_shape(d).columns, ffn = spec.moe().expert.ffn;
  if (spec.hidden % columns == 0 && ffn % columns == 0) return Status::ok();
  return unsupported("experts as " + std::string(dtype_name(d)) + " have rows of whole groups of " +
                     std::to_string(columns) + " numbers, and those of this model are " + std::to_string(spec.hidden) +
                     " and " + std::to_string(ffn) + " wide; choose int4");
}

Status mixed_is_asked_for(const std::string& what, const std::string& flag) {
  return unsupported(what + " as mixed: the source does not have them so; leave " + flag +
                     " out to keep them as they are");
}

Result<PackPlanOptions> plan_options(const Checkpoint& checkpoint, const PackOptions& options) {
  PackPlanOptions out;
  out.file_bytes_max = options.file_bytes_max;
  out.model_name = options.model_name;
  if (out.model_name.empty()) out.model_name = checkpoint.name();
  const DType own =
      checkpoint.is_native() ? one_format(checkpoint.expert_formats()) : checkpoint.own_expert_dtype().dtype;
  out.experts = options.experts.empty() ? std::vector{own} : options.experts;
  if (options.experts.empty() || std::ranges::find(out.experts, DType::kMixed) != out.experts.end())
    MOESTRO_RETURN_IF_ERROR(check_blocks_hold_experts(checkpoint));
  for (const DType d : out.experts) {
    if (is_made_of_others(d)) MOESTRO_RETURN_IF_ERROR(check_widths(checkpoint.model().spec, d));
    else if (is_blocks(d)) MOESTRO_RETURN_IF_ERROR(check_expert_blocks(checkpoint, d));
    if (d == DType::kMixed && d != own) return mixed_is_asked_for("experts", "--experts");
  }
  out.dense = options.dense;
  if (!checkpoint.is_native()) out.dense = options.dense.value_or(checkpoint.own_dense_dtype().dtype);
  if (out.dense == DType::kMixed) return mixed_is_asked_for("dense weights", "--dense");
  if (out.dense) {
    const bool blocks = is_blocks(*out.dense);
    if (blocks) MOESTRO_RETURN_IF_ERROR(check_dense_blocks(checkpoint, *out.dense));
    const DType plain = checkpoint.is_native() ? DType::kF32 : checkpoint.own_dense_dtype().dtype;
    out.dense_rest = blocks || is_quantised(*out.dense) ? plain : computed_as(*out.dense);
    if (blocks && checkpoint.is_native()) out.dense_rest = std::nullopt;  // an embedding of blocks stays small
  }
  if (std::set(out.experts.begin(), out.experts.end()).size() != out.experts.size())
    return invalid_argument("an expert precision is given twice");
  return out;
}

// What somebody who compares results or sizes will wonder about.
std::vector<std::string> remarks(const Checkpoint& checkpoint, const PackOptions& options) {
  std::vector<std::string> lines;
  const auto widened = [&](const char* what, const char* flag) {
    lines.push_back(std::string(what) + " are of several formats and become f32, which holds them all exactly; " +
                    flag + " bf16 or f16 takes half the room");
  };
  const bool as_they_are = options.experts.empty() && !options.dense;
  if (checkpoint.is_native() && as_they_are)
    lines.push_back("weights stay in the formats that the source has them in");
  if (!options.dense && has_widened_dense(checkpoint))
    lines.push_back("dense matrices whose columns are ordered by activation (GPTQ with desc_act) become f32, which is "
                    "exact; --dense bf16 takes half the room");
  if (std::string twice = quantised_twice(checkpoint, options.experts, options.dense); !twice.empty())
    lines.push_back(std::move(twice));
  if (!checkpoint.is_native() && !options.dense && checkpoint.own_dense_dtype().widened)
    widened("dense weights", "--dense");
  if (!checkpoint.is_native() && options.experts.empty() && checkpoint.own_expert_dtype().widened)
    widened("experts", "--experts");
  if (const int64_t n = checkpoint.model().spec.mtp_layers; n > 0)
    lines.push_back("the checkpoint's layers after the last (" + std::to_string(n) +
                    " by config.json), which predict further tokens, are left out: nothing speculates with them yet");
  for (const std::string& part : checkpoint.left_out()) lines.push_back("left out of the pack: " + part);
  lines.insert(lines.end(), checkpoint.remarks().begin(), checkpoint.remarks().end());
  const model::RopeSpec& rope = checkpoint.model().spec.rope;
  if (rope.scaling == model::RopeSpec::Scaling::kDynamic)
    lines.push_back(
        "rope_type 'dynamic': beyond " + std::to_string(rope.original_max_position) +
        " positions results are those of transformers fed token by token, not those of one long forward pass");
  return lines;
}

// What must be equal for an unfinished pack to go on: the checkpoint, and everything that decides the plan.
uint64_t journal_key(const Checkpoint& checkpoint, const PackPlanOptions& options) {
  std::string text = std::to_string(kPackVersion) + '/' + std::to_string(kExpertLayoutId) + '/' + options.model_name +
                     '/' + std::string(dtype_name(options.dense.value_or(DType::kMixed))) + '/' +
                     std::to_string(options.file_bytes_max);
  for (const DType d : options.experts) text += '/' + std::string(dtype_name(d));
  if (options.shares.size() > 1)
    for (const uint32_t share : options.shares) text += '+' + std::to_string(share);
  return XXH3_64bits_withSeed(text.data(), text.size(), checkpoint.fingerprint());
}

Status check_holds_no_pack(const fs::path& dir) {
  std::error_code error;
  if (!fs::exists(dir / "manifest", error)) return Status::ok();
  return invalid_argument(dir.string() + ": already holds a pack; remove it or choose another directory");
}

Status prepare_directory(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return io_error(dir.string() + ": cannot be made", error.value());
  MOESTRO_RETURN_IF_ERROR(check_holds_no_pack(dir));
  if (!fs::exists(dir / kJournalName, error) && !fs::exists(dir / kSharesName, error) && !fs::is_empty(dir, error))
    return invalid_argument(dir.string() + ": is not empty and holds no unfinished pack; choose another directory");
  return error ? io_error(dir.string(), error.value()) : Status::ok();
}

/// The small files of a pack, with the texts of the configs that the checkpoint was opened with: workers read those of
/// the manifest, and the orchestrator these.
Result<std::vector<TextFile>> small_files(const Checkpoint& checkpoint, const fs::path& source) {
  if (checkpoint.made_files()) return *checkpoint.made_files();
  MOESTRO_ASSIGN_OR_RETURN(std::vector<TextFile> files, read_tokenizer_files(source));
  if (!checkpoint.generation_config_json().empty())
    files.insert(files.begin(), {"generation_config.json", checkpoint.generation_config_json()});
  files.insert(files.begin(), {"config.json", checkpoint.config_json()});
  return files;
}

// What was read after a change is of another version than what was read before, here or in an earlier run whose blobs
// the journal has. So nothing of it is kept. A file that may only have another link or mode is read again.
Status check_source(const Checkpoint& checkpoint, BlobWriter& writer, const Status& written, Journal& journal,
                    const std::function<void(const std::string&)>& note) {
  MOESTRO_ASSIGN_OR_RETURN(const Checkpoint::Change change, checkpoint.change());
  if (change.since == File::Since::kNothing) return Status::ok();
  if (change.since == File::Since::kTouched) {
    if (!written.is_ok()) return Status::ok();  // that comes first, and the next run begins anew
    note(change.file + ": has got another link, name or mode while it was packed, or other bytes and its old time: "
         "reading the source again to know which");
    const Status same = writer.compare_again();
    if (same.code() != Code::kCorrupt) return same;
  }
  MOESTRO_RETURN_IF_ERROR(journal.clear());
  return invalid_argument(change.file + ": has changed while it was packed, so the pack would be of two versions; when "
                          "nothing writes to it any more, give the same command again");
}

// The manifest makes it a pack: after it nothing but the journal's removal is left.
Status finish(const std::vector<TextFile>& small, const fs::path& dir, Manifest& manifest) {
  MOESTRO_ASSIGN_OR_RETURN(manifest.copied, write_files(small, dir));
  for (const ShardUse& shard : shard_use(dir, manifest))
    if (shard.directory != 0) MOESTRO_RETURN_IF_ERROR(sync_directory(shard_path(dir, shard.directory)));
  MOESTRO_RETURN_IF_ERROR(write_file_durably(dir, "manifest", serialise_manifest(manifest)));
  std::error_code ignored;
  fs::remove(dir / kJournalName, ignored);
  fs::remove(dir / kSharesName, ignored);
  return sync_directory(dir);
}

// Data files of the plan's sizes. False if one of them was missing or had another size, so that nothing in it can be
// relied on.
Result<bool> open_data_files(const fs::path& dir, const PackPlan& plan, std::vector<File>& files) {
  bool as_left = true;
  const std::vector<fs::path> paths = data_files(dir, plan.manifest);
  for (size_t i = 0; i < paths.size(); ++i) {
    MOESTRO_ASSIGN_OR_RETURN(File file, File::open_for_writing(paths[i]));
    MOESTRO_ASSIGN_OR_RETURN(const uint64_t size, file.size());
    if (size != plan.file_bytes[i]) {
      as_left = false;
      MOESTRO_RETURN_IF_ERROR(file.reserve(plan.file_bytes[i]));
    }
    files.push_back(std::move(file));
  }
  return as_left;
}

// Whether the disk has room for what is not there yet of each directory's files.
Status check_room(const fs::path& dir, const PackPlan& plan) {
  std::map<fs::path, uint64_t> missing;
  const std::vector<fs::path> paths = data_files(dir, plan.manifest);
  for (size_t i = 0; i < paths.size(); ++i) {
    struct stat st{};
    const uint64_t there = ::stat(paths[i].c_str(), &st) == 0 ? static_cast<uint64_t>(st.st_blocks) * 512 : 0;
    missing[paths[i].parent_path()] += plan.file_bytes[i] - std::min(plan.file_bytes[i], there);
  }
  for (const auto& [directory, bytes] : missing) {
    std::error_code error;
    const fs::space_info room = fs::space(directory, error);
    if (!error && room.available < bytes)
      return exhausted(directory.string() + ": " + config::readable_size(bytes) + " are needed, " +
                       config::readable_size(room.available) + " are free: " + std::to_string(bytes - room.available) +
                       " bytes are missing; make room or choose another directory");
  }
  return Status::ok();
}

Status to_be_continued(const Status& why, const fs::path& dir) {
  return {why.code(), why.message() + "; " + dir.string() + " holds an unfinished pack, which the same command " +
                          "continues; remove it if you do not want it"};
}

/// What has been written is of no use if the source or the options are wrong: others begin anew. Otherwise it stays.
Status stopped(const Status& why, const fs::path& dir, size_t directories) {
  if (why.code() != Code::kInvalidArgument && why.code() != Code::kUnsupported) return to_be_continued(why, dir);
  std::error_code ignored;
  for (uint32_t d = 0; d < directories; ++d) remove_pack_files(shard_path(dir, d));
  for (uint32_t d = 1; d < directories; ++d) fs::remove(shard_path(dir, d), ignored);
  fs::remove(dir / kSharesName, ignored);
  fs::remove(dir / kJournalName, ignored);
  fs::remove(dir, ignored);
  return why;
}

/// What is written, of which nothing is there yet but the directories and, of an unfinished pack, files.
Result<PackPlan> plan_in(const fs::path& dir, const Checkpoint& checkpoint, const PackOptions& options,
                         PackPlanOptions& plan_with) {
  MOESTRO_RETURN_IF_ERROR(check_holds_no_pack(dir));  // another packer may have finished since it was looked at
  MOESTRO_ASSIGN_OR_RETURN(plan_with.shares, settle_spread(dir, options.own_share, options.spread));
  PackPlan plan = plan_pack(checkpoint, plan_with);
  MOESTRO_RETURN_IF_ERROR(check_room(dir, plan));
  return plan;
}

/// Removes a journal that was not begun, and the directory where it is still empty.
void leave_unbegun(const fs::path& dir, const File& journal) {
  const auto size = journal.size();
  std::error_code ignored;
  if (!size || *size > 0) return;
  fs::remove(dir / kJournalName, ignored);
  fs::remove(dir, ignored);
}

Result<PackSummary> pack_opened(const Checkpoint& checkpoint, const std::vector<TextFile>& small, const fs::path& dir,
                                const PackOptions& options, const PackObserver& observer) {
  const auto note = [&](const std::string& line) {
    if (observer.note) observer.note(line);
  };
  MOESTRO_ASSIGN_OR_RETURN(PackPlanOptions plan_with, plan_options(checkpoint, options));
  MOESTRO_RETURN_IF_ERROR(prepare_directory(dir));
  MOESTRO_ASSIGN_OR_RETURN(File lock, Journal::lock(dir));
  auto planned = plan_in(dir, checkpoint, options, plan_with);
  if (!planned) {
    leave_unbegun(dir, lock);
    return planned.status();
  }
  PackPlan& plan = *planned;
  for (const std::string& line : remarks(checkpoint, options)) note(line);
  MOESTRO_ASSIGN_OR_RETURN(Journal journal,
                           Journal::open(std::move(lock), journal_key(checkpoint, plan_with), plan.manifest));
  if (journal.restarted()) {
    note("the unfinished pack there is of another source or has other options: starting anew");
    for (uint32_t d = 0; d < plan_with.shares.size(); ++d) remove_pack_files(shard_path(dir, d));
    MOESTRO_RETURN_IF_ERROR(journal.clear());
  }
  std::vector<File> files;
  const auto as_left = open_data_files(dir, plan, files);
  if (!as_left) return to_be_continued(as_left.status(), dir);
  if (!*as_left && !journal.finished().empty()) {
    note("files of the unfinished pack are gone or changed: starting anew");
    MOESTRO_RETURN_IF_ERROR(journal.clear());
  }
  BlobWriter writer(checkpoint, plan, files, journal, options, observer);
  if (writer.resumed_bytes() > 0)
    note("going on where an earlier run stopped: checking the " + std::to_string(writer.resumed_bytes()) +
         " bytes that are there");
  writer.check_resumed();
  const PackSummary summary{plan.total_bytes, writer.resumed_bytes(),
                            static_cast<uint32_t>(plan.manifest.blobs.size())};
  if (writer.damaged_blobs() > 0)
    note(std::to_string(writer.damaged_blobs()) +
         " blobs have changed since they were written and are written again: look at the drive");
  const Status written = writer.write_all();
  MOESTRO_RETURN_IF_ERROR(check_source(checkpoint, writer, written, journal, note));
  if (!written.is_ok()) return stopped(written, dir, plan_with.shares.size());
  const Status finished = finish(small, dir, plan.manifest);
  if (!finished.is_ok()) return to_be_continued(finished, dir);
  return summary;
}

}  // namespace

Result<PackSummary> pack_checkpoint(const fs::path& source, const fs::path& dir, const PackOptions& options,
                                    const PackObserver& observer) {
  MOESTRO_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(source));
  MOESTRO_ASSIGN_OR_RETURN(const std::vector<TextFile> small, small_files(checkpoint, source));
  return pack_opened(checkpoint, small, dir, options, observer);
}

Result<PackSummary> pack_random(const RandomModel& model, const fs::path& dir, const PackOptions& options,
                                const PackObserver& observer) {
  MOESTRO_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                           Checkpoint::random(model.config_json, model.generation_config_json, model.seed));
  return pack_opened(checkpoint, model.files, dir, options, observer);
}

}  // namespace moestro::store
