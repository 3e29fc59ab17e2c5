// fuzz-deps: moestro_batch_upload
// A file of a batch on its way in, from the form to the file store: the input is the room on its disk (two bytes), the
// Content-Type's line, then the body. However it is cut, the same file comes of it, or none; nothing is kept of one
// that is refused.

#include <cstdint>
#include <future>
#include <string>

#include "common/check.h"
#include "orchestrator/batch/upload.h"

namespace api = moestro::orchestrator;

namespace {

struct Kept {
  std::string bytes;
  bool made = false, committed = false;
};

/// Files of which one at a time is looked at, on a disk of so many bytes.
class FilesInMemory final : public api::FileStore {
 public:
  FilesInMemory(Kept& kept, size_t room) : kept_(kept), room_(room) {}
  moestro::Result<std::unique_ptr<api::PartFile>> create(const std::string& id) const override {
    MOESTRO_CHECK(api::is_id(id, "file-") && !kept_.made, "one file, with an id");
    kept_.made = true;
    return std::unique_ptr<api::PartFile>(std::make_unique<Part>(kept_, room_));
  }
  moestro::Result<std::unique_ptr<api::FileBytes>> open(const std::string&) const override {
    return moestro::not_found("");
  }
  void remove(const std::string&) const override {}
  bool keeps_strays() const override { return false; }
  void sweep(const std::function<bool(const std::string&)>&) const override {}

 private:
  class Part final : public api::PartFile {
   public:
    Part(Kept& kept, size_t room) : kept_(kept), room_(room) {}
    moestro::Status commit() override {
      kept_.committed = true;
      return moestro::Status::ok();
    }

   private:
    moestro::Status append(std::string_view bytes) override {
      if (kept_.bytes.size() + bytes.size() > room_) return moestro::exhausted("the disk is full");
      kept_.bytes += bytes;
      return moestro::Status::ok();
    }
    Kept& kept_;
    const size_t room_;
  };
  Kept& kept_;
  const size_t room_;
};

struct Outcome {
  bool fine = false;
  Kept kept;
  std::string name, purpose;
  int64_t expires = 0;
  bool operator==(const Outcome& o) const {
    return fine == o.fine &&
           (!fine || (kept.bytes == o.kept.bytes && name == o.name && purpose == o.purpose && expires == o.expires));
  }
};

/// As the server does it: piece after piece, each when the one before has been taken, and no more once it is refused.
Outcome upload(const std::string& type, std::string_view body, size_t piece, size_t room) {
  static api::Background disk(4);
  Outcome outcome;
  const FilesInMemory files(outcome.kept, room);
  std::promise<void> gone;
  {
    auto form = std::make_shared<api::Upload>(
        type, files, disk, [](const std::function<void()>& task) { task(); }, [&gone] { gone.set_value(); });
    bool more = true;
    for (size_t at = 0; more && at < body.size(); at += piece) {
      std::promise<bool> taken;
      form->take(std::string(body.substr(at, piece)), [&taken](bool wanted) { taken.set_value(wanted); });
      more = taken.get_future().get();
    }
    std::promise<void> finished;
    MOESTRO_CHECK(disk.run([&] {
      const auto file = form->finish();
      MOESTRO_CHECK(file.is_ok() || !file.status().message().empty(), "a refusal without a reason");
      MOESTRO_CHECK(!file.is_ok() || more, "what was refused is kept");
      outcome.fine = file.is_ok();
      if (file.is_ok()) {
        MOESTRO_CHECK(file->bytes == outcome.kept.bytes.size(), "the record says another length");
        api::FileSum sum;
        sum.add(outcome.kept.bytes);
        MOESTRO_CHECK(file->checksum == sum.text(), "the record says another checksum");
        outcome.name = file->name, outcome.purpose = file->purpose, outcome.expires = form->expires_seconds();
      }
      form.reset();
      finished.set_value();
    }), "a thread that has nothing to do is full");
    finished.get_future().get();
  }
  gone.get_future().get();
  MOESTRO_CHECK(outcome.kept.committed == outcome.fine,
                "a file is kept of an upload that failed, or none of one that did not");
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t room = data[0] | size_t{data[1]} << 8;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) return 0;
  const std::string type(text.substr(0, line));
  const std::string_view body = text.substr(line + 1);
  const size_t small = body.size() / 64 + 1;  // each piece goes through a thread
  const Outcome whole = upload(type, body, body.size() + 1, room);
  MOESTRO_CHECK(whole == upload(type, body, small, room), "what becomes of an upload depends on its pieces");
  MOESTRO_CHECK(whole == upload(type, body, small + size % 61, room),
                "what becomes of an upload depends on its pieces");
  return 0;
}
