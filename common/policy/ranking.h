#pragma once
// The keys of a group in the order of their rank: a binary heap that knows the position of each key. All operations are
// O(log n), in arrays.

#include <cstdint>
#include <utility>
#include <vector>

namespace moestro::policy {

class Ranking {
 public:
  static constexpr uint32_t kNowhere = UINT32_MAX;
  struct Item {
    double rank = 0;
    double tie = 0;  ///< of two equal ranks the smaller goes first
    uint32_t key = 0;
    bool operator<(const Item& o) const {
      return rank != o.rank ? rank < o.rank : tie != o.tie ? tie < o.tie : key < o.key;
    }
  };

  /// `place` is shared by all groups: key -> position in the group that holds it, kNowhere if none does.
  explicit Ranking(std::vector<uint32_t>& place) : place_(&place) {}

  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  const Item& first() const { return heap_.front(); }
  const Item& at(size_t position) const { return heap_[position]; }

  void insert(const Item& item) {
    heap_.push_back(item);
    put(heap_.size() - 1, item);
    up(heap_.size() - 1);
  }
  void erase(uint32_t key) {
    const size_t at = std::exchange((*place_)[key], kNowhere);
    const Item last = heap_.back();
    heap_.pop_back();
    if (at == heap_.size()) return;
    put(at, last);
    up(at);
    down((*place_)[last.key]);
  }
  void move(const Item& item) {
    const size_t at = (*place_)[item.key];
    put(at, item);
    up(at);
    down((*place_)[item.key]);
  }

 private:
  void put(size_t at, const Item& item) {
    heap_[at] = item;
    (*place_)[item.key] = static_cast<uint32_t>(at);
  }
  void up(size_t at) {
    const Item item = heap_[at];
    for (; at > 0 && item < heap_[(at - 1) / 2]; at = (at - 1) / 2) put(at, heap_[(at - 1) / 2]);
    put(at, item);
  }
  void down(size_t at) {
    const Item item = heap_[at];
    while (true) {
      size_t child = 2 * at + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
      if (!(heap_[child] < item)) break;
      put(at, heap_[child]);
      at = child;
    }
    put(at, item);
  }

  std::vector<uint32_t>* place_;
  std::vector<Item> heap_;
};

}  // namespace moestro::policy
