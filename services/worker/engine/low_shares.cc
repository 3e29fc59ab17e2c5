#include "services/worker/engine/low_shares.h"

namespace moestro::engine {

void LowShares::clear() {
  accounts_.clear();
  account_of_.clear();
}

void LowShares::add(uint32_t rows, double most, const CopyCounts& before) {
  account_of_.resize(account_of_.size() + rows, static_cast<uint32_t>(accounts_.size()));
  accounts_.push_back({most, rows, before.choices, before.low + before.skipped});
}

void LowShares::add_choices(int64_t top_k) {
  for (Account& account : accounts_) account.choices += account.rows * static_cast<uint64_t>(top_k);
}

bool LowShares::take(std::span<const kernels::RoutedRow> rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    Account& account = of(rows[i].token);
    ++account.low;
    if (static_cast<double>(account.low) <= account.most * static_cast<double>(account.choices)) continue;
    for (size_t taken = 0; taken <= i; ++taken) --of(rows[taken].token).low;
    return false;
  }
  return true;
}

}  // namespace moestro::engine
