#include "store/arena/arena_directory.h"

#include "common/shm/whole_file.h"
#include "store/arena/text_file.h"

namespace moestro::store {
namespace {

constexpr std::string_view kFirstLine = "moestro-arena 2";
constexpr size_t kBytesMax = 16 << 20;

template <typename T>
Status read_number(std::string_view line, std::string_view key, T& value) {
  const std::string_view word = next_word(line);
  const auto parsed = number<T>(line);
  if (word != key || !parsed) return corrupt("it has no line '" + std::string(key) + " NUMBER' where one belongs");
  value = *parsed;
  return Status::ok();
}

Result<ArenaDirectory::Pack> read_pack(std::string_view line) {
  const std::string_view key = next_word(line);
  const auto identity = number<uint64_t>(next_word(line), 16);
  const auto first = number<uint32_t>(next_word(line)), blobs = number<uint32_t>(next_word(line));
  if (key != "pack" || !identity || !first || !blobs) return corrupt("it has a line that names no pack");
  return ArenaDirectory::Pack{*identity, *first, *blobs, std::string(line)};
}

Status read_window(std::string_view line, ArenaDirectory& d) {
  (void)next_word(line);
  const auto places = number<uint32_t>(next_word(line));
  const auto bytes = number<uint64_t>(line);
  if (!places || !bytes || *places == 0 || *bytes == 0) return corrupt("it has a line 'window' without two numbers");
  d.window_places = *places, d.window_place_bytes = *bytes;
  return Status::ok();
}

Status read_streamed(std::string_view line, ArenaDirectory::Pack& pack) {
  (void)next_word(line);
  while (!line.empty()) {
    const auto blob = number<uint32_t>(next_word(line));
    if (!blob || *blob >= pack.blobs || (!pack.streamed.empty() && *blob <= pack.streamed.back()))
      return corrupt("it has a line 'streamed' that names no blobs of its pack");
    pack.streamed.push_back(*blob);
  }
  return Status::ok();
}

}  // namespace

std::string serialise_directory(const ArenaDirectory& d) {
  std::string text(kFirstLine);
  text += "\nshared-version " + std::to_string(d.shared_version) + "\narena-bytes " + std::to_string(d.arena_bytes) +
          "\nentries " + std::to_string(d.entries) + "\nsegment-bytes " + std::to_string(d.segment_bytes) + "\n";
  if (d.window_places > 0)
    text += "window " + std::to_string(d.window_places) + " " + std::to_string(d.window_place_bytes) + "\n";
  for (const ArenaDirectory::Pack& pack : d.packs) {
    std::string path = pack.path;
    for (char& c : path)
      if (c == '\n') c = '?';
    text += "pack " + hex(pack.identity) + " " + std::to_string(pack.first_entry) + " " + std::to_string(pack.blobs) +
            " " + path + "\n";
    if (pack.streamed.empty()) continue;
    text += "streamed";
    for (const uint32_t blob : pack.streamed) text += " " + std::to_string(blob);
    text += "\n";
  }
  return with_checksum(std::move(text));
}

Result<ArenaDirectory> parse_directory(std::string_view text) {
  MOESTRO_ASSIGN_OR_RETURN(const auto lines, checked_lines(text));
  if (lines.empty() || lines[0] != kFirstLine) return unsupported("it is of another version of this program");
  if (lines.size() < 5) return corrupt("it ends early");
  ArenaDirectory d;
  MOESTRO_RETURN_IF_ERROR(read_number(lines[1], "shared-version", d.shared_version));
  MOESTRO_RETURN_IF_ERROR(read_number(lines[2], "arena-bytes", d.arena_bytes));
  MOESTRO_RETURN_IF_ERROR(read_number(lines[3], "entries", d.entries));
  MOESTRO_RETURN_IF_ERROR(read_number(lines[4], "segment-bytes", d.segment_bytes));
  for (size_t i = 5; i < lines.size(); ++i) {
    if (i == 5 && lines[i].starts_with("window ")) {
      MOESTRO_RETURN_IF_ERROR(read_window(lines[i], d));
      continue;
    }
    if (lines[i].starts_with("streamed ") && !d.packs.empty() && d.packs.back().streamed.empty()) {
      MOESTRO_RETURN_IF_ERROR(read_streamed(lines[i], d.packs.back()));
      continue;
    }
    MOESTRO_ASSIGN_OR_RETURN(auto pack, read_pack(lines[i]));
    if (uint64_t{pack.first_entry} + pack.blobs > d.entries)
      return corrupt("pack " + pack.path + " has entries beyond the table's end");
    d.packs.push_back(std::move(pack));
  }
  return d;
}

Status write_directory(const std::filesystem::path& dir, const ArenaDirectory& directory) {
  return shm::write_whole_file(dir / "directory", serialise_directory(directory));
}

Result<ArenaDirectory> read_directory(const std::filesystem::path& dir) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string text, read_lines_file(dir / "directory", kBytesMax));
  auto directory = parse_directory(text);
  if (!directory) return directory.status().with_context((dir / "directory").string());
  return directory;
}

}  // namespace moestro::store
