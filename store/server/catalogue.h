#pragma once
// The packs that a store serves and the table entries of their blobs. Names of the same version of a pack share its
// entries. Models are added and removed while the store serves. A version of a pack keeps its entries until they are no
// longer used.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/tier/dense_window.h"
#include "store/machine/store_machine.h"
#include "store/pack/manifest.h"
#include "store/reader/pack_files.h"
#include "store/server/store_options.h"

namespace moestro::store {

class Catalogue {
 public:
  struct Pack {
    std::filesystem::path dir;
    Manifest manifest;
    uint32_t first_entry = 0;  ///< blob i is table entry first_entry + i
    uint32_t first_file = 0;
    uint64_t largest_expert = 0, dense_bytes = 0, expert_bytes = 0;
    uint32_t experts = 0;              ///< each once, in how many precisions it may be there
    uint32_t experts_at_once = 1;      ///< that a worker should have room for
    std::vector<uint32_t> layers;      ///< blobs with the dense weights of one layer each, in the order of a step
    std::vector<uint32_t> streamed;    ///< of them, those that take turns in the arena, ascending
    ModelMask owners = 0;   ///< the models that it counts for: those that use it, or, if retired, those that did
    std::string last_name;  ///< the name that it is or was last served under
    bool retired = false;   ///< no longer served under a name; its entries stay while workers or other packs use them
    bool removed = false;   ///< its entries have been given to the machine to forget
    uint32_t blobs() const { return static_cast<uint32_t>(manifest.blobs.size()); }
    uint64_t streamed_bytes() const {
      uint64_t bytes = 0;
      for (const uint32_t blob : streamed) bytes += manifest.blobs[blob].length;
      return bytes;
    }
  };
  struct Model {
    std::string name;
    uint32_t pack = 0;
  };

  static Result<Catalogue> open(const std::vector<ModelSource>& sources);
  /// What open() makes the same catalogue of, with the same entries if there are no free ones between its packs.
  std::vector<ModelSource> sources() const;

  /// The pack in `dir` as it is on disk now, not yet part of the catalogue. Any fault is an error.
  static Result<Pack> look_at(const std::filesystem::path& dir);
  /// The pack of this directory and this manifest, if it has entries. It may be `removed`, and have some of them.
  std::optional<uint32_t> find_version(const Pack& seen) const;
  /// Whether `seen`, which has no entries, is the version of pack `index`, which has one name, in another directory.
  bool is_copy_of(uint32_t index, const Pack& seen) const;
  /// The first of `count` free entries below `entries_max`.
  Result<uint32_t> free_entries(uint32_t count, uint32_t entries_max) const;
  /// Adds it at `first_entry` and opens its files.
  Result<uint32_t> add(Pack seen, uint32_t first_entry);
  /// Opens its files again; it is read from these from now on. Returns the number of the first previous file. Close the
  /// previous files when nothing is read from them any more.
  Result<uint32_t> reopen(uint32_t pack);
  void close_files(uint32_t first, uint32_t count) { files_.close(first, count); }
  /// `name` means this pack from now on. Its previous pack is retired if it has no other name.
  void name(const std::string& name, uint32_t pack);
  /// The number of a model's share. It belongs to the model as long as the model or one of its workers exists:
  /// `attached` has the numbers of workers' models. kExhausted above kModelsMax.
  Result<uint32_t> number(const std::string& name, ModelMask attached = 0);
  std::optional<uint32_t> known_number(const std::string& name) const;
  /// False if there is no such model.
  bool forget_name(const std::string& name);
  /// Its entries are free and its files are not read any more: drops it.
  void drop(uint32_t pack);

  /// By index, without those that were dropped.
  const std::map<uint32_t, Pack>& packs() const { return packs_; }
  Pack& pack(uint32_t index) { return packs_.at(index); }
  const Pack& pack(uint32_t index) const { return packs_.at(index); }
  const std::vector<Model>& models() const { return models_; }
  const PackFiles& files() const { return files_; }
  /// The current pack of a model, or an error that lists the existing models.
  Result<uint32_t> find(const std::string& name) const;
  const Pack& pack_of_entry(uint32_t entry) const;
  const Blob& blob(uint32_t entry) const;
  bool has_entry(uint32_t entry) const;
  /// "model m, layer 3, expert 5 (bf16)" or "model m, dense blob 2".
  std::string describe(uint32_t entry) const;
  static std::vector<MachineBlob> machine_blobs(const Pack& pack);
  /// What dense_window.cc divides an arena by: all packs, whose workers pass the layers.
  tier::DenseNeeds dense_needs(uint32_t workers) const;
  /// The layers of all packs, in the order of dense_needs(), are streamed where this says so.
  void stream(const std::vector<bool>& streamed);
  /// The blobs of all packs, by entry. Only at start, when there are no free entries between them.
  std::vector<MachineBlob> machine_blobs() const;
  /// One more than the last entry in use.
  uint32_t entries() const;

 private:
  std::map<uint32_t, Pack> packs_;            ///< by a number that is never used again
  std::map<uint32_t, uint32_t> by_entry_;     ///< first entry -> pack
  std::vector<Model> models_;
  std::map<std::string, uint32_t> numbers_;
  PackFiles files_;
  uint32_t next_pack_ = 0;
};

}  // namespace moestro::store
