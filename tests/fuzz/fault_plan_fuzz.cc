// The text of store.inject_read_faults.
// fuzz-deps: moestro_store_reader
#include <string>

#include "common/check.h"
#include "store/reader/faulty_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto plan = moestro::store::parse_fault_plan(std::string(reinterpret_cast<const char*>(data), size));
  if (!plan) {
    MOESTRO_CHECK(!plan.status().message().empty(), "a refusal says why");
    return 0;
  }
  const uint64_t sum =
      uint64_t{plan->eio} + plan->enospc + plan->enomem + plan->eagain + plan->eintr + plan->short_reads + plan->flip;
  MOESTRO_CHECK(sum <= 1000, "no more faults than reads");
  return 0;
}
