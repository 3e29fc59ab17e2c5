// The table that a killed store has left, any numbers in it: it is adopted or refused, and what was adopted can be
// used.
// fuzz-deps: moestro_store_machine moestro_policy
#include <cstring>
#include <set>
#include <vector>

#include "common/check.h"
#include "common/policy/lru_policy.h"
#include "store/machine/store_machine.h"

namespace store = moestro::store;

namespace {

constexpr uint32_t kEntries = 12, kPage = 4096, kRoom = 8;

class Memory final : public store::SharedState {
 public:
  void set_word(uint32_t, store::Residency, uint64_t) override {}
  void set_place(uint32_t, uint64_t offset, const store::ContentHash&) override {
    MOESTRO_CHECK(offset == store::kNoPlace || (offset % kPage == 0 && offset < kRoom * kPage),
                  "a place within the arena, or none");
  }
  void set_alias(uint32_t, uint32_t first) override { MOESTRO_CHECK(first < kEntries, "an alias of an entry"); }
  void clear_alias(uint32_t) override {}
  void set_length(uint32_t, uint64_t) override {}
  void note_wrong(uint32_t) override {}
  bool pinned(uint32_t entry) const override { return pins.contains(entry); }
  store::UseNote uses(uint32_t) const override { return {}; }
  uint64_t uses_of_all() const override { return 0; }
  uint64_t stamp_now() const override { return 1; }
  void set_share(uint32_t, uint64_t) override {}
  void set_window_share(uint32_t, uint32_t) override {}
  void set_pin_bytes_min(uint64_t) override {}
  std::set<uint32_t> pins;
};

/// Takes numbers off the input; zeros at its end.
class Numbers {
 public:
  Numbers(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  template <typename T>
  T next() {
    T value{};
    const size_t n = std::min(left_, sizeof value);
    if (n > 0) std::memcpy(&value, data_, n);
    data_ += n, left_ -= n;
    return value;
  }
  bool more() const { return left_ > 0; }

 private:
  const uint8_t* data_;
  size_t left_;
};

store::StoreMachine::Former read_former(Numbers& in) {
  store::StoreMachine::Former former;
  const auto shape = in.next<uint8_t>();
  former.state = shape & 15;
  former.generation = in.next<uint16_t>();
  const auto place = in.next<uint8_t>();
  former.offset = (shape & 16) != 0 ? in.next<uint64_t>() : place % kRoom * kPage;  // mostly where something could lie
  former.content = {uint64_t{in.next<uint8_t>()} & 7, 0};
  former.alias = (shape & 32) != 0 ? in.next<uint32_t>() : in.next<uint8_t>() % (kEntries + 2);
  former.last_use = in.next<uint8_t>();
  return former;
}

store::Actions end_read(store::StoreMachine& machine, const store::Action& read, uint8_t how) {
  return machine.read_done(read.entry, read.load, (how & 8) != 0 ? moestro::io_error("") : moestro::Status::ok(),
                           {how & 7u, 0});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Numbers in(data, size);
  Memory memory;
  std::vector<store::MachineBlob> blobs(kEntries, store::MachineBlob{.length = kPage, .format = 1});
  for (const uint32_t dense : {0, 6})
    blobs[dense].dense = true, blobs[dense].format = 2;  // blob_format() tells them apart, too
  auto machine = store::StoreMachine::create({.arena_bytes = kRoom * kPage}, blobs,
                                             std::make_unique<moestro::policy::LruPolicy>(), memory);
  MOESTRO_CHECK(machine.is_ok(), "a machine");
  std::vector<store::StoreMachine::Former> former;
  const auto pins = in.next<uint16_t>();
  for (uint32_t entry = 0; entry < kEntries; ++entry) {
    if ((pins >> entry & 1) != 0) memory.pins.insert(entry);
    former.push_back(read_former(in));
  }
  auto todo = (*machine)->adopt(former);
  if (!todo) {
    MOESTRO_CHECK(!todo.status().message().empty(), "a refusal says why");
    return 0;
  }
  (*machine)->attached(0, kPage);
  while (in.more() || !todo->empty()) {
    if (!in.more()) memory.pins.clear();  // until then, what was leased before is
    if (todo->empty()) *todo = (*machine)->fetch(0, {in.next<uint8_t>(), 0}, {in.next<uint8_t>() % kEntries});
    if (todo->empty()) continue;
    const store::Action action = todo->back();
    todo->pop_back();
    store::Actions more;
    if (action.kind == store::Action::Kind::kCheck)
      more = (*machine)->checked(action.entry, action.load, (in.next<uint8_t>() & 1) != 0);
    if (action.kind == store::Action::Kind::kRead) more = end_read(**machine, action, in.next<uint8_t>());
    todo->insert(todo->end(), more.begin(), more.end());
  }
  memory.pins.clear();
  (*machine)->poll();
  MOESTRO_CHECK(!(*machine)->sweeping(), "no place is kept for leases that are gone");
  return 0;
}
