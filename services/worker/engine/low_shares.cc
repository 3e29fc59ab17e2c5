#include "services/worker/engine/low_shares.h"

#include <algorithm>

namespace moestro::engine {

void LowShares::clear() {
  accounts_.clear();
  account_of_.clear();
  low_.clear();
  choices_of_row_ = 0;
}

void LowShares::add(uint32_t rows, double most, const CopyCounts& before) {
  const auto first = static_cast<uint32_t>(account_of_.size());
  account_of_.resize(first + rows, static_cast<uint32_t>(accounts_.size()));
  low_.resize(first + rows);
  accounts_.push_back({most, first, rows, before.choices, before.low + before.skipped});
}

/// Up to each of its rows.
bool LowShares::is_within(const Account& account) const {
  if (account.most >= 1) return true;
  uint64_t choices = account.choices, low = account.low;
  return std::all_of(low_.begin() + account.first, low_.begin() + account.first + account.rows, [&](uint32_t of_row) {
    choices += choices_of_row_, low += of_row;
    return static_cast<double>(low) <= account.most * static_cast<double>(choices);
  });
}

bool LowShares::take(std::span<const kernels::RoutedRow> rows) {
  for (const kernels::RoutedRow& row : rows) ++low_[static_cast<size_t>(row.token)];
  bool all_within = true;
  const Account* last = nullptr;
  for (size_t i = 0; i < rows.size() && all_within; ++i)
    if (const Account& account = of(rows[i].token); &account != last) all_within = is_within(*(last = &account));
  if (!all_within)
    for (const kernels::RoutedRow& row : rows) --low_[static_cast<size_t>(row.token)];
  return all_within;
}

}  // namespace moestro::engine
