#pragma once

namespace moestro::kernels::limits {

/// An amount (bytes, operations) and how long it took.
struct Measured {
  double amount = 0, seconds = 0;
  double rate() const { return seconds > 0 ? amount / seconds : 0; }
  Measured& operator+=(const Measured& other) {
    amount += other.amount;
    seconds += other.seconds;
    return *this;
  }
};

}  // namespace moestro::kernels::limits
