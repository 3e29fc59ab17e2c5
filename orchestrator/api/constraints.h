#pragma once
// From a request's output format and tools to what a sequence may say.

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "orchestrator/api/completion_request.h"
#include "orchestrator/api/served_model.h"
#include "orchestrator/grammar/triggered_grammar.h"
#include "orchestrator/scheduler/token_rules.h"

namespace moestro::orchestrator {

/// How one request's sequences are constrained; copies share the grammar.
struct Constraint {
  std::shared_ptr<grammar::CompiledGrammar> grammar;  ///< null: not at all
  std::shared_ptr<grammar::TriggeredGrammar>
      triggered;  ///< not null: only what follows a marker, up to the grammar's end
  std::vector<std::string> passed_over;  ///< what tools' schemas want and calls need not have, by name and place
  std::shared_ptr<const TokenRules> rules = {};  ///< the request's own, with a grammar or without; null: none

  /// For one sequence; null if there is no constraint. `unshown_space`: a space that its text begins with is not shown.
  std::shared_ptr<TokenConstraint> begin(bool unshown_space = false) const;
};

/// Makes them, and keeps those that were used last. From any thread.
class Constraints {
 public:
  explicit Constraints(const ServedModel& model) : model_(model) {}
  /// Errors name 'tools', or the field that asked for the format. `reasoning_open`: the prompt ends in reasoning, which
  /// calls that must be made come behind. It ends soon after a stop was asked for, with an error that nobody reads.
  std::variant<Constraint, ApiError> of(const CompletionRequest& request, bool reasoning_open,
                                        const std::stop_token& stop = {}) const;

 private:
  struct Kept {
    std::string key;
    Constraint made;
  };
  /// `calls`: special tokens that mark calls and reasoning have bytes.
  std::shared_ptr<const grammar::GrammarVocabulary> vocabulary(bool calls) const;
  std::optional<Constraint> find_kept(const std::string& key) const;
  Result<Constraint> compiled(const CompletionRequest& request, bool triggered, bool open,
                              const std::stop_token& stop) const;
  std::variant<Constraint, ApiError> free_calls(const CompletionRequest& request) const;

  const ServedModel& model_;
  mutable std::mutex mutex_, vocabulary_mutex_;
  mutable std::shared_ptr<const grammar::GrammarVocabulary> vocabulary_, vocabulary_of_calls_;  ///< made when wanted
  mutable std::list<Kept> kept_;  ///< the last one used first
};

}  // namespace moestro::orchestrator
