#include "store/reader/faulty_reader.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "common/settings.h"

namespace moestro::store {

namespace {

/// A whole number of at most `most`, to `field`.
template <typename T>
auto number_into(T& field, uint64_t most) {
  return [&field, most](std::string_view text) {
    uint64_t value = 0;
    const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || stopped != text.data() + text.size() || value > most)
      return invalid_argument("'" + std::string(text) + "' is not a whole number up to " + std::to_string(most));
    field = static_cast<T>(value);
    return Status::ok();
  };
}

}  // namespace

Result<FaultPlan> parse_fault_plan(const std::string& text) {
  FaultPlan plan;
  const auto rate = [](uint32_t& field) { return number_into(field, 1000); };
  const Setting settings[] = {{"eio", rate(plan.eio)},       {"enospc", rate(plan.enospc)},
                              {"enomem", rate(plan.enomem)}, {"eagain", rate(plan.eagain)},
                              {"eintr", rate(plan.eintr)},   {"short", rate(plan.short_reads)},
                              {"flip", rate(plan.flip)},     {"seed", number_into(plan.seed, UINT64_MAX)},
                              {"delay", number_into(plan.delay_ms, 10000)}};
  const Status read = read_settings(
      text, settings,
      "not NAME=PER_THOUSAND with a NAME of eio, enospc, enomem, eagain, eintr, short, flip (or seed=N, "
      "delay=MILLISECONDS)");
  MOESTRO_RETURN_IF_ERROR(read.with_context("faults of reads"));
  if (plan.eio + plan.enospc + plan.enomem + plan.eagain + plan.eintr + plan.short_reads + plan.flip > 1000)
    return invalid_argument("faults of reads: more than 1000 in 1000");
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
