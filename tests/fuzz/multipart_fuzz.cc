// fuzz-deps: moestro_batch_text
// An uploaded form, as it arrives: the input is the Content-Type's line, then the body. However it is cut, it says the
// same.

#include <cstdint>
#include <string>

#include "common/check.h"
#include "orchestrator/batch/multipart.h"

namespace api = moestro::orchestrator;

namespace {

struct Read {
  bool fine = false, complete = false;
  std::string said;  ///< the parts and their bytes
};

Read read(const std::string& type, std::string_view body, size_t piece) {
  Read result;
  const api::MultipartReader::Callbacks callbacks{[&](const api::MultipartReader::Part& part) {
                                                    result.said += "\n[" + part.name + "|" + part.filename + "]";
                                                    return moestro::Status::ok();
                                                  },
                                                  [&](std::string_view bytes) {
                                                    result.said += bytes;
                                                    return moestro::Status::ok();
                                                  }};
  auto reader = api::MultipartReader::open(type, callbacks);
  if (!reader.is_ok()) return result;
  for (size_t at = 0; at < body.size(); at += piece)
    if (!reader->feed(body.substr(at, piece)).is_ok()) return result;
  result.fine = true;
  result.complete = reader->complete();
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) return 0;
  const std::string type(text.substr(0, line));
  const std::string_view body = text.substr(line + 1);
  const size_t smallest = body.size() < 1024 ? 1 : 97;  // byte by byte, long ones take too long
  const Read whole = read(type, body, body.size() + 1), bytes = read(type, body, smallest),
             pieces = read(type, body, smallest + size % 61);
  for (const Read& other : {bytes, pieces}) {
    MOESTRO_CHECK(whole.fine == other.fine && whole.complete == other.complete,
                  "what is refused depends on the pieces");
    MOESTRO_CHECK(!whole.fine || whole.said == other.said, "what is read depends on the pieces");
  }
  return 0;
}
