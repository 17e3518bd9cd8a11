// Index specifications of contractions, in named indices separated by spaces.
//
//   contract       "b s d, b l d -> b s l"
//   scaled_reduce  "b s l -> b s | b l d -> b s d | -> b s": the scores and the running maximum's indices, then for
//   each
//                  sum the indices of its factor (none: the factor is 1) and of its result.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"

namespace cleave::graph {

using IndexNames = std::vector<std::string>;

struct ContractSpec {
  std::vector<IndexNames> operands;
  IndexNames result;
  IndexNames reduced() const;  // indices of the operands that the result lacks, in order of first use
};

struct ScaledReduceSpec {
  IndexNames scores;
  IndexNames maximum;
  struct Sum {
    bool has_factor;
    IndexNames factor;
    IndexNames result;
  };
  std::vector<Sum> sums;
  IndexNames reduced() const;  // indices of the scores that the maximum lacks
};

Result<ContractSpec> parse_contract_spec(std::string_view text);
Result<ScaledReduceSpec> parse_scaled_reduce_spec(std::string_view text);
std::string print(const ContractSpec& spec);
std::string print(const ScaledReduceSpec& spec);
std::string join(const IndexNames& names);

}  // namespace cleave::graph
