#include "common/tier/line_reader.h"

#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

namespace moestro::tier {
namespace {

constexpr size_t kLineBytesMax = size_t{16} << 20;
constexpr int kWindowLogMax = 27;  ///< 128 MiB: what a file can make the reader hold

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

}  // namespace

struct LineReader::Impl {
  std::string name;
  std::unique_ptr<std::FILE, Close> file;
  std::unique_ptr<ZSTD_DStream, Close> stream;  ///< null: plain
  std::vector<char> in = std::vector<char>(1 << 16), out = std::vector<char>(1 << 17);
  ZSTD_inBuffer packed{};
  size_t frame_left = 0;  ///< what zstd says is missing of the frame
  std::string text;       ///< read, not handed out
  size_t at = 0;
  bool ended = false;

  Status fill();
  Status unpack();
};

Status LineReader::Impl::unpack() {
  ZSTD_outBuffer plain{out.data(), out.size(), 0};
  const size_t left = ZSTD_decompressStream(stream.get(), &plain, &packed);
  if (ZSTD_isError(left))
    return corrupt(name + ": not a zstd file, or a damaged one (" + ZSTD_getErrorName(left) + ")");
  frame_left = left;
  text.append(out.data(), plain.pos);
  return Status::ok();
}

/// More text, or ended.
Status LineReader::Impl::fill() {
  text.erase(0, at), at = 0;
  if (stream && packed.pos < packed.size) return unpack();
  const size_t got = std::fread(in.data(), 1, in.size(), file.get());
  if (got == 0) {
    if (std::ferror(file.get())) return io_error(name, errno);
    if (stream && frame_left != 0) return corrupt(name + ": the zstd file is cut short");
    return ended = true, Status::ok();
  }
  if (!stream) return text.append(in.data(), got), Status::ok();
  packed = {in.data(), got, 0};
  return unpack();
}

LineReader::LineReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader& LineReader::operator=(LineReader&&) noexcept = default;

Result<LineReader> LineReader::open(const std::filesystem::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->name = path.string();
  impl->file.reset(std::fopen(path.c_str(), "rbe"));
  if (!impl->file) return io_error(path.string(), errno);
  if (path.extension() == ".zst") {
    impl->stream.reset(ZSTD_createDStream());
    if (!impl->stream) return exhausted(path.string() + ": no memory to decompress it");
    ZSTD_DCtx_setParameter(impl->stream.get(), ZSTD_d_windowLogMax, kWindowLogMax);
  }
  return LineReader(std::move(impl));
}

Result<std::optional<std::string>> LineReader::next() {
  Impl& r = *impl_;
  size_t searched = r.at;
  while (true) {
    const size_t end = r.text.find('\n', searched);
    if (end != std::string::npos) {
      std::string line = r.text.substr(r.at, end - r.at);
      r.at = end + 1;
      return std::optional(std::move(line));
    }
    if (r.ended) break;
    if (r.text.size() - r.at > kLineBytesMax) return corrupt(r.name + ": a line of more than 16 MiB");
    searched = r.text.size() - r.at;
    MOESTRO_RETURN_IF_ERROR(r.fill());
  }
  if (r.at == r.text.size()) return std::optional<std::string>();
  std::string line = r.text.substr(r.at);
  r.at = r.text.size();
  return std::optional(std::move(line));
}

}  // namespace moestro::tier
