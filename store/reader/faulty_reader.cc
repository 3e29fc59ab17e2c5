#include "store/reader/faulty_reader.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <thread>

namespace moestro::store {

Result<FaultPlan> parse_fault_plan(const std::string& text) {
  FaultPlan plan;
  const std::map<std::string, uint32_t*> rates{
      {"eio", &plan.eio},     {"enospc", &plan.enospc},     {"enomem", &plan.enomem}, {"eagain", &plan.eagain},
      {"eintr", &plan.eintr}, {"short", &plan.short_reads}, {"flip", &plan.flip}};
  uint64_t sum = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size()), equals = std::min(text.find('=', at), end);
    const std::string name = text.substr(at, equals < end ? equals - at : end - at);
    uint64_t value = 0;
    const char* last = text.data() + end;
    const bool number = equals + 1 < end && std::from_chars(text.data() + equals + 1, last, value).ptr == last;
    const auto rate = rates.find(name);
    const bool other = name == "seed" || (name == "delay" && value <= 10000);
    if (!number || (rate == rates.end() && !other) || (rate != rates.end() && value > 1000))
      return invalid_argument("faults of reads: '" + text.substr(at, end - at) +
                              "' is not NAME=PER_THOUSAND with a NAME of eio, enospc, enomem, eagain, eintr, short, "
                              "flip (or seed=N, delay=MILLISECONDS)");
    if (name == "delay") plan.delay_ms = static_cast<uint32_t>(value);
    else if (rate == rates.end()) plan.seed = value;
    else *rate->second = static_cast<uint32_t>(value), sum += value;
    at = end + 1;
  }
  if (sum > 1000) return invalid_argument("faults of reads: more than 1000 in 1000");
  return plan;
}

Fault random_faults(const FaultPlan& plan) {
  return [plan, random = std::mt19937_64(plan.seed)](const ReadOp& op, ReadResult& result) mutable {
    if (plan.delay_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(plan.delay_ms));
    uint64_t draw = random() % 1000;
    const auto falls_in = [&draw](uint32_t rate) {
      if (draw < rate) return draw = UINT64_MAX, true;
      return draw -= rate, false;
    };
    const std::pair<uint32_t, int> errors[] = {
        {plan.eio, EIO}, {plan.enospc, ENOSPC}, {plan.enomem, ENOMEM}, {plan.eagain, EAGAIN}, {plan.eintr, EINTR}};
    if (result.result <= 0) return;
    for (const auto& [rate, error] : errors)
      if (falls_in(rate)) {
        std::memset(op.into, 0xaa, op.length);
        result.result = -error;
        return;
      }
    if (falls_in(plan.short_reads)) {
      const auto n = static_cast<int64_t>(random() % static_cast<uint64_t>(result.result));
      result.result = std::max<int64_t>(n, 1);
      std::memset(op.into + result.result, 0xaa, op.length - static_cast<size_t>(result.result));
    } else if (falls_in(plan.flip)) {
      op.into[random() % static_cast<uint64_t>(result.result)] ^= std::byte{4};
    }
  };
}

bool FaultyReader::submit(const ReadOp& op) {
  if (!inner_->submit(op)) return false;
  ops_[op.tag] = op;
  return true;
}

void FaultyReader::reap(std::vector<ReadResult>& results) {
  const size_t before = results.size();
  inner_->reap(results);
  for (size_t i = before; i < results.size(); ++i) {
    const auto found = ops_.find(results[i].tag);
    const ReadOp op = found->second;
    ops_.erase(found);
    fault_(op, results[i]);
  }
}

}  // namespace moestro::store
