#include "store/pack/gguf_model.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <set>

#include "common/model/strict_json.h"
#include "store/pack/weight_files.h"

namespace moestro::store {
namespace {

using model::in_quotes;
namespace fs = std::filesystem;

constexpr uint64_t kFirstRead = 1 << 20, kHeaderMax = uint64_t{1} << 28;
constexpr int64_t kPartsMax = 99999;
constexpr std::string_view kSuffix = ".gguf", kOf = "-of-";
constexpr size_t kDigits = 5;

/// "NAME-00002-of-00003.gguf".
struct PartName {
  std::string name;
  int64_t part = 1, parts = 1;
  std::string file() const {
    if (parts == 1) return name + std::string(kSuffix);
    char numbers[32];
    std::snprintf(numbers, sizeof numbers, "-%05d-of-%05d", static_cast<int>(part), static_cast<int>(parts));
    return name + numbers + std::string(kSuffix);
  }
};

std::optional<int64_t> number_of(std::string_view digits) {
  int64_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || digits.size() != kDigits)
    return std::nullopt;
  return value;
}

PartName parse_name(std::string file) {
  if (file.ends_with(kSuffix)) file.resize(file.size() - kSuffix.size());
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits;
  if (file.size() > kTail) {
    const std::string_view tail = std::string_view(file).substr(file.size() - kTail);
    const auto part = number_of(tail.substr(1, kDigits)), parts = number_of(tail.substr(kTail - kDigits));
    if (tail[0] == '-' && tail.substr(1 + kDigits, kOf.size()) == kOf && part && parts && *part >= 1 && *parts > 1 &&
        *part <= *parts)
      return {file.substr(0, file.size() - kTail), *part, *parts};
  }
  return {std::move(file), 1, 1};
}

Result<GgufHeader> read_header(const File& file) {
  MOESTRO_RETURN_IF_ERROR(check_is_no_lfs_pointer(file));
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t size, file.size());
  std::vector<std::byte> bytes;
  for (uint64_t wanted = kFirstRead;; wanted *= 4) {
    const uint64_t had = bytes.size();
    bytes.resize(std::min({wanted, size, kHeaderMax}));
    MOESTRO_RETURN_IF_ERROR(file.read_at(had, std::span(bytes).subspan(had)));
    MOESTRO_ASSIGN_OR_RETURN(GgufParse parsed, parse_gguf_header(bytes, size, file.path()));
    if (!parsed.needs_more) return std::move(parsed.header);
    if (bytes.size() >= kHeaderMax) return unsupported(file.path() + ": has a header of more than 256 MiB");
  }
}

/// Whether a part says of itself what its name does.
Status check_part(const GgufHeader& header, const PartName& name, const std::string& where) {
  MOESTRO_ASSIGN_OR_RETURN(const auto count, header.metadata.integer("split.count"));
  MOESTRO_ASSIGN_OR_RETURN(const auto number, header.metadata.integer("split.no"));
  const int64_t parts = count.value_or(0) == 0 ? 1 : *count;
  if (parts < 1 || parts > kPartsMax || name.parts != parts)
    return invalid_argument(where + ": is a part of " + std::to_string(parts) + " (split.count), by its name of " +
                            std::to_string(name.parts) + "; a split file must keep its names");
  if (parts > 1 && number.value_or(-1) != name.part - 1)
    return invalid_argument(where + ": says that it is part " + std::to_string(number.value_or(-1) + 1) +
                            " (split.no), by its name it is " + std::to_string(name.part));
  return Status::ok();
}

}  // namespace

Result<GgufModel> GgufModel::open(const fs::path& path) {
  GgufModel m;
  PartName name = parse_name(path.filename().string());
  m.name = name.name;
  std::set<std::string> names;
  for (name.part = 1; name.part <= name.parts; ++name.part) {
    // A model in one file keeps whatever name it has.
    auto opened = File::open_for_reading(name.parts == 1 ? path : path.parent_path() / name.file());
    if (!opened)
      return opened.status().with_context("part " + std::to_string(name.part) + " of " + std::to_string(name.parts));
    MOESTRO_ASSIGN_OR_RETURN(GgufHeader header, read_header(*opened));
    MOESTRO_RETURN_IF_ERROR(check_part(header, name, opened->path()));
    for (GgufTensor& t : header.tensors) {
      if (!names.insert(t.name).second)
        return invalid_argument(opened->path() + ": tensor " + in_quotes(t.name) + " is also in another part");
      m.header.tensors.push_back(std::move(t));
      m.file_of.push_back(static_cast<uint32_t>(m.files.size()));
    }
    if (name.part == 1) m.header.metadata = std::move(header.metadata);
    m.files.push_back(std::move(*opened));
  }
  MOESTRO_ASSIGN_OR_RETURN(const auto count, m.header.metadata.integer("split.tensors.count"));
  if (name.parts > 1 && count && *count != std::ssize(m.header.tensors))
    return invalid_argument(path.string() + ": its parts hold " + std::to_string(m.header.tensors.size()) +
                            " tensors, split.tensors.count says " + std::to_string(*count));
  return m;
}

Result<fs::path> find_gguf(const fs::path& source) {
  std::error_code error;
  if (fs::is_regular_file(source, error)) return source.extension() == kSuffix ? source : fs::path();
  if (!fs::is_directory(source, error) || has_safetensors(source)) return fs::path();
  std::vector<fs::path> models;
  for (const fs::directory_entry& entry : fs::directory_iterator(source, error)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(kSuffix) || file.starts_with("mmproj")) continue;  // that part of a model sees images
    if (parse_name(file).part == 1) models.push_back(entry.path());
  }
  if (models.size() < 2) return models.empty() ? fs::path() : models.front();
  std::ranges::sort(models);
  return invalid_argument(source.string() + ": holds several models as GGUF; give the file of one: " +
                          models.front().string() + ", " + models[1].string() + (models.size() > 2 ? ", ..." : ""));
}

}  // namespace moestro::store
